"""The HTTP surface of a simulated server: which path does what."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from draftmark.sim import state
from draftmark.sim.answers import Generate, GenerateWhole, OpenAI, Style
from draftmark.sim.http import Call, Connection
from draftmark.sim.metrics import exposition
from draftmark.sim.requests import Request, Sink
from draftmark.sim.setup import most_accepted
from draftmark.sim.text import Tokenizer, chat_text

if TYPE_CHECKING:
    from draftmark.sim.service import Service

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_OPEN = frozenset({"/health", "/health_generate", "/metrics", "/get_load"})
_ADMIN = frozenset({"/flush_cache", "/abort_request", "/set_internal_state"})
_DEFAULT_NEW = 128  # max_new_tokens of /generate
_DEFAULT_OPENAI = 4096
_LONGEST_RID = 200
_MARGIN = 5  # of a context, tokens that no prompt may use


class _RefusedError(Exception):
    """A request that cannot be served, in words."""


Handler = Callable[[Call, Connection], None]


class Routes:
    """Answers calls."""

    def __init__(self, service: Service) -> None:
        self.service = service
        setup = service.setup
        self._setup = setup
        self._tokenizer = Tokenizer(setup.shape.vocab)
        self._style = Style(
            minor=setup.rules.minor,
            speculates=setup.memory.settings.algorithm is not None,
            incremental=bool(setup.args.get("incremental_streaming_output")),
            model=str(setup.args["served_model_name"]),
            seconds=service.clock.seconds,
            created=lambda: int(service.clock.now().timestamp()),
        )
        self._most_accepted = most_accepted(setup.memory)
        self._ordinal = 0
        self._get: Mapping[str, Handler] = {
            "/health": self._health,
            "/health_generate": self._health,
            "/ping": self._health,
            "/model_info": lambda _, c: c.json(200, state.model_info(setup)),
            "/get_model_info": lambda _, c: c.json(200, state.model_info(setup)),
            "/server_info": self._info,
            "/get_server_info": self._info,
            "/v1/models": lambda _, c: c.json(200, state.models(setup, self._style.created())),
            "/v1/loads": lambda _, c: c.json(200, state.loads(setup, service.scheduler)),
            "/get_load": lambda _, c: c.json(200, state.loads(setup, service.scheduler)["loads"]),
            "/metrics": self._metrics,
            "/flush_cache": self._flush,
        }
        self._post: Mapping[str, Handler] = {
            "/generate": self._generate,
            "/v1/chat/completions": lambda call, c: self._openai(call, c, chat=True),
            "/v1/completions": lambda call, c: self._openai(call, c, chat=False),
            "/tokenize": self._tokenize,
            "/flush_cache": self._flush,
            "/abort_request": self._abort,
            "/set_internal_state": self._set_state,
        }

    def handle(self, call: Call, connection: Connection) -> None:
        """Answer, now or later."""
        if not self._allowed(call):
            connection.json(401, {"error": "Unauthorized"})
            return
        handler = (self._post if call.method == "POST" else self._get).get(call.path)
        if handler is None:
            known = call.path in self._post or call.path in self._get
            connection.json(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})
            return
        try:
            handler(call, connection)
        except _RefusedError as error:
            message = str(error)
            connection.json(400, {"error": {"message": message, "type": "BadRequestError", "code": 400}})

    def _allowed(self, call: Call) -> bool:
        key, admin = self._setup.args.get("api_key"), self._setup.args.get("admin_api_key")
        if call.path in _OPEN:
            return True
        wanted = admin if admin and call.path in _ADMIN else key
        return not wanted or call.headers.get("authorization") == f"Bearer {wanted}"

    # --- what the server is ---------------------------------------------------------------------------------------

    def _health(self, _call: Call, connection: Connection) -> None:
        self.service.check_health(
            lambda status: connection.whole(status, b"", "text/plain") if connection.open else None
        )

    def _info(self, call: Call, connection: Connection) -> None:
        if call.path.startswith("/get_") and self._setup.rules.minor >= 14:
            self.service.log.say(f"Endpoint '{call.path}' is deprecated. Use '/{call.path[5:]}' instead.")
        service = self.service
        connection.json(
            200, state.server_info(self._setup, service.scheduler, service.status, service.clock.behind_s)
        )

    def _metrics(self, _call: Call, connection: Connection) -> None:
        if not self._setup.args.get("enable_metrics"):
            connection.json(404, {"detail": "Not Found"})
            return
        text = exposition(self.service.scheduler, self._setup.memory, self._style.model)
        connection.whole(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    # --- what can be done to it -----------------------------------------------------------------------------------

    def _flush(self, _call: Call, connection: Connection) -> None:
        if self.service.scheduler.flush():
            connection.whole(200, b"Cache flushed.\nPlease check backend logs for more details.\n", "text/plain")
        else:
            connection.whole(400, b"Flush cache failed: requests are running or waiting.\n", "text/plain")

    def _abort(self, call: Call, connection: Connection) -> None:
        body = _object(call)
        for request in self.service.scheduler.remaining():
            if body.get("abort_all") or request.rid == body.get("rid"):
                self.service.give_up(
                    request, "Abort before prefill" if not request.output else "Abort in waiting queue"
                )
        connection.whole(200, b"", "text/plain")

    def _set_state(self, call: Call, connection: Connection) -> None:
        asked = _object(call).get("server_args")
        allowed = {"speculative_accept_threshold_single", "speculative_accept_threshold_acc"}
        known = isinstance(asked, dict) and bool(asked) and set(asked) <= allowed
        if known:
            self.service.scheduler.totals.rounds = self.service.scheduler.totals.taken = 0
        connection.json(200, [{"updated": known or self._setup.rules.minor < 17, "server_args": self._setup.args}])

    def _tokenize(self, call: Call, connection: Connection) -> None:
        body = _object(call)
        messages = body.get("messages")
        if isinstance(messages, list) and self._setup.rules.minor >= 12:
            text = chat_text([each for each in messages if isinstance(each, dict)])
        elif isinstance(body.get("prompt"), str):
            text = body["prompt"]
        else:
            raise _RefusedError("either messages or prompt is needed")
        ids = self._tokenizer.encode(text)
        connection.json(200, {"tokens": ids, "count": len(ids), "max_model_len": self._setup.memory.context})

    # --- what it is for -------------------------------------------------------------------------------------------

    def _generate(self, call: Call, connection: Connection) -> None:
        body = _object(call)
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise _RefusedError("sampling_params is not an object")
        text, tokens = self._prompt(body)
        most = _whole(sampling.get("max_new_tokens", _DEFAULT_NEW), "max_new_tokens")
        sink: Sink = (Generate if body.get("stream") else GenerateWhole)(connection, self._style)
        seed = sampling.get("sampling_seed")
        self._enter(connection, sink, body.get("rid"), text, tokens, most, self._seed(text, sampling, seed))

    def _prompt(self, body: Mapping[str, Any]) -> tuple[str, int]:
        """The text, as far as it is known, and how many tokens it has."""
        ids, text = body.get("input_ids"), body.get("text")
        if isinstance(text, str):
            return text, len(self._tokenizer.encode(text))
        if isinstance(ids, list) and ids and all(type(each) is int for each in ids):
            known = self._tokenizer.text_of(ids)
            return known, len(ids)
        raise _RefusedError("a simulated server takes one prompt: text, or input_ids as a list of numbers")

    def _openai(self, call: Call, connection: Connection, *, chat: bool) -> None:
        body = _object(call)
        if chat:
            messages = body.get("messages")
            if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
                raise _RefusedError("messages is not a list of messages")
            text = chat_text(messages)
        else:
            prompt = body.get("prompt")
            if not isinstance(prompt, str):
                raise _RefusedError("a simulated server takes one prompt as text")
            text = prompt
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        most = body.get("max_completion_tokens") or body.get("max_tokens") or _DEFAULT_OPENAI
        sink = OpenAI(
            connection,
            self._style,
            chat=chat,
            stream=bool(body.get("stream")),
            usage=bool(options.get("include_usage")),
            continuous=bool(options.get("continuous_usage_stats")),
        )
        tokens = len(self._tokenizer.encode(text))
        seed = self._seed(text, body, body.get("seed"))
        self._enter(connection, sink, body.get("rid"), text, tokens, _whole(most, "max_tokens"), seed)

    def _seed(self, text: str, sampling: Mapping[str, Any], seed: object) -> str:
        """By what an answer is drawn: greedy ones by the prompt alone, others by their seed or their turn."""
        told = f"{self._setup.words.seed} {text}"
        if sampling.get("temperature", 1.0) == 0:
            return told
        self._ordinal += 1
        return f"{told} {self._ordinal if seed is None else seed}"

    def _enter(
        self, connection: Connection, sink: Sink, rid: object, text: str, tokens: int, most: int, seed: str
    ) -> None:
        pools, context = self._setup.memory.pools, self._setup.memory.context
        longest = min(context, pools.tokens) - _MARGIN
        if tokens >= longest:
            raise _RefusedError(
                f"The input ({tokens} tokens) is longer than the model's context length ({longest} tokens)."
            )
        digest = hashlib.blake2b(f"{seed} {self.service.entered}".encode(), digest_size=16).hexdigest()
        draws = None
        if self._style.speculates:
            topk = self._setup.memory.settings.topk if self._setup.memory.settings.eagle else 1
            draws = self._setup.acceptance.draws(text, seed, most=self._most_accepted, branches=topk)
        request = Request(
            rid=rid if isinstance(rid, str) and 0 < len(rid) <= _LONGEST_RID and rid.isprintable() else digest,
            prompt=tokens,
            most=max(1, min(most, longest - tokens)),
            sink=sink,
            draws=draws,
            digest=int(hashlib.blake2b(seed.encode(), digest_size=4).hexdigest(), 16),
            histogram=[0] * (self._most_accepted + 1) if self._style.speculates else [],
        )
        connection.on_lost = lambda: self.service.scheduler.abort(request)
        self.service.enter(request)


def _object(call: Call) -> dict[str, Any]:
    if not call.body:
        return {}
    try:
        found = msgspec.json.decode(call.body)
    except _DECODE_ERRORS as error:
        raise _RefusedError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _RefusedError("the body is no JSON object")
    return found


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _RefusedError(f"{name} is not a whole number above 0")
    return value
