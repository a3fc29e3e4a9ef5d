"""A running SGLang server over HTTP. Endpoints as in 0.5.10 to 0.5.23, asked for in turn where they differ."""

from __future__ import annotations

import math
from collections.abc import Mapping

from draftmark.engines.http import Reply, call
from draftmark.engines.prometheus import total
from draftmark.errors import StartError
from draftmark.model import Activity, Counters, Health, ServerLimits, SpeculationState

_LARGEST = 2**53  # up to here a sample, which is a float, counts exactly
_HEALTH_S = 22.0  # it generates a token, and gives itself 20 s for that
_FLUSH_S = 5.0  # how long the server itself may wait for requests to end, where it can
# Older servers answer only to the second, and newer ones log a warning for each call of it.
_INFO = ("/server_info", "/get_server_info")
_LOADS = ("/v1/loads?include=core", "/get_load")


class SglangClient:
    """ports.EngineClient for SGLang."""

    def __init__(self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._asked = False
        self._proposed: int | None = None

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return self._base_url

    def _call(self, path: str, body: object | None = None, timeout_s: float | None = None) -> Reply | None:
        return call(self._base_url + path, body=body, headers=self._headers, timeout_s=timeout_s or self._timeout_s)

    def _first(self, paths: tuple[str, ...]) -> object:
        """The document of the first path that a server of any version answers."""
        for path in paths:
            reply = self._call(path)
            if reply is None:
                return None
            if reply.status != 404:
                return reply.json() if reply.status == 200 else None
        return None

    def health(self) -> Health:
        """503 until its own warm-up request is answered, and again while it drains; 200 is a genuine sign.

        /model_info and the like answer as soon as HTTP is up, long before.
        """
        reply = self._call("/health", timeout_s=_HEALTH_S)
        if reply is None:
            return Health.UNREACHABLE
        return Health.READY if reply.status == 200 else Health.LOADING

    def generate_one(self) -> None:
        """One token over the native endpoint: /health may be set to answer without generating any."""
        body = {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        reply = self._call("/generate", body, timeout_s=60.0)
        document = reply.json() if reply is not None and reply.status == 200 else None
        if not isinstance(document, dict) or not isinstance(document.get("text"), str):
            shown = "no answer within 60 s" if reply is None else f"HTTP {reply.status}: {reply.body[:200]!r}"
            raise StartError("the server is up but does not generate", evidence=(f"POST /generate: {shown}",))

    def info(self) -> dict[str, object] | None:
        """`/server_info`: the resolved arguments, and what the scheduler made of them."""
        document = self._first(_INFO)
        return document if isinstance(document, dict) else None

    def version(self) -> str | None:
        """As the server says; None when it does not."""
        found = (self.info() or {}).get("version")
        return found if isinstance(found, str) else None

    def speculation(self) -> SpeculationState:
        """The resolved algorithm and steps, of the scheduler where it tells them.

        Under --speculative-adaptive the steps move with acceptance, so that no depth is told.
        """
        info = self.info()
        if info is None or "speculative_algorithm" not in info:
            return SpeculationState(on=None, depth=None, source="GET /server_info (not available)")
        source = "GET /server_info"
        for state in (*_internal_states(info), info):
            if "speculative_algorithm" in state:
                return _speculation(state, source)
        return _speculation(info, source)

    def limits(self) -> ServerLimits:
        """Over all ranks, as its schedulers have them; at its top /server_info has what was asked for."""
        states = _internal_states(self.info() or {})
        memory = [state.get("memory_usage") for state in states]
        return ServerLimits(
            max_running_requests=_sum([_whole(s.get("effective_max_running_requests_per_dp")) for s in states]),
            kv_tokens=_sum([_whole(m.get("token_capacity")) if isinstance(m, dict) else None for m in memory]),
        )

    def accept_len(self) -> float | None:
        """Tokens gained per round, over all ranks' requests since the start or the last `fresh`."""
        for state in _internal_states(self.info() or {}):
            value = state.get("avg_spec_accept_length")
            if isinstance(value, int | float) and math.isfinite(value) and value >= 1:
                return float(value)  # the first rank's: each counts its own
        return None

    def counters(self) -> Counters:
        """From /metrics, which is off unless the server was started with --enable-metrics.

        Each finished request counts its tokens, of which the first comes from the prompt's own pass, and its
        rounds; each round gives a token besides the accepted ones. 0.5.14 is the first to count rounds.
        """
        reply = self._call("/metrics")
        if reply is None or reply.status != 200:
            return Counters()
        text = reply.body.decode("utf-8", "replace")
        output = _count(text, "sglang:generation_tokens_total")
        requests = _count(text, "sglang:num_requests_total")
        rounds = _count(text, "sglang:spec_verify_calls_total")
        if not rounds or output is None or requests is None:
            return Counters(output_tokens=output, raw=text)
        drafts_a_round = self._drafts_a_round()
        return Counters(
            drafts=rounds,
            drafted_tokens=rounds * drafts_a_round if drafts_a_round is not None else None,
            accepted_tokens=max(0, output - requests - rounds),
            output_tokens=output,
            raw=text,
        )

    def _drafts_a_round(self) -> int | None:
        """Tokens that each round proposes; asked once, for nothing changes it but adaptive speculation."""
        if not self._asked:
            self._asked = True
            for state in _internal_states(self.info() or {}):
                tokens = _whole(state.get("speculative_num_draft_tokens"))
                fixed = tokens and state.get("speculative_adaptive") is not True
                self._proposed = tokens - 1 if tokens and fixed else None
        return self._proposed

    def activity(self) -> Activity:
        """Requests running and waiting, summed over the ranks.

        `/v1/loads` in all versions read; before them `/get_load`, and the gauges of /metrics where neither answers.
        """
        ranks = _ranks(self._first(_LOADS))
        if ranks:
            running = [_running(rank) for rank in ranks]
            waiting = [_whole(rank.get("num_waiting_reqs")) for rank in ranks]
            return Activity(running=_sum(running), queued=_sum(waiting))
        reply = self._call("/metrics")
        if reply is None or reply.status != 200:
            return Activity(running=None, queued=None)
        text = reply.body.decode("utf-8", "replace")
        return Activity(
            running=_count(text, "sglang:num_running_reqs"), queued=_count(text, "sglang:num_queue_reqs")
        )

    def fresh(self) -> None:
        """Forget cached prompts; `accept_len` counts anew from here. Best effort: it refuses while requests run."""
        self._call(f"/flush_cache?timeout={_FLUSH_S:.0f}", body={}, timeout_s=2 * _FLUSH_S)


def _internal_states(info: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    states = info.get("internal_states")
    return tuple(state for state in states if isinstance(state, dict)) if isinstance(states, list) else ()


def _speculation(state: Mapping[str, object], source: str) -> SpeculationState:
    algorithm = state.get("speculative_algorithm")
    if algorithm is None:
        return SpeculationState(on=False, depth=0, source=source)
    if not isinstance(algorithm, str):
        return SpeculationState(on=None, depth=None, source=source)
    source = f"{source}: {algorithm}"
    if state.get("speculative_adaptive") is True:
        return SpeculationState(on=True, depth=None, source=f"{source}, adaptive")
    tokens = _whole(state.get("speculative_num_draft_tokens"))
    if algorithm in ("NGRAM", "DFLASH"):
        return SpeculationState(on=True, depth=tokens, source=source)
    if algorithm == "DSPARK":
        return SpeculationState(on=True, depth=None if tokens is None else max(0, tokens - 1), source=source)
    return SpeculationState(on=True, depth=_whole(state.get("speculative_num_steps")), source=source)


def _ranks(document: object) -> tuple[Mapping[str, object], ...]:
    """One entry a data-parallel rank: `{"loads": […]}` of /v1/loads, a bare list of /get_load."""
    found = document.get("loads") if isinstance(document, dict) else document
    return tuple(entry for entry in found if isinstance(entry, dict)) if isinstance(found, list) else ()


def _running(rank: Mapping[str, object]) -> int | None:
    running = _whole(rank.get("num_running_reqs"))
    if running is not None:
        return running
    everything, waiting = _whole(rank.get("num_reqs")), _whole(rank.get("num_waiting_reqs"))
    return None if everything is None or waiting is None else max(0, everything - waiting)


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def _count(text: str, name: str) -> int | None:
    """A metric as a count; None when it is absent or cannot be one: not a number, infinite, below zero, absurd."""
    value = total(text, name)
    if value is None or not math.isfinite(value) or not 0 <= value <= _LARGEST:
        return None
    return round(value)
