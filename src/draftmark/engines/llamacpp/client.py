"""A running llama-server over HTTP. Endpoints as in tools/server at about b11434."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from draftmark.engines.http import Reply, call
from draftmark.engines.prometheus import by_label, total
from draftmark.errors import StartError
from draftmark.model import Activity, Counters, Health, ServerLimits, SpeculationState

_BY_POSITION, _DEEPEST = "spec_decode_num_accepted_tokens_per_pos", 256
_LARGEST = 2**53  # up to here a sample, which is a float, counts exactly


class LlamaServerClient:
    """ports.EngineClient for llama-server."""

    def __init__(self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 5.0) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return self._base_url

    def _call(self, path: str, body: object | None = None, timeout_s: float | None = None) -> Reply | None:
        return call(self._base_url + path, body=body, headers=self._headers, timeout_s=timeout_s or self._timeout_s)

    def health(self) -> Health:
        """503 until the model is loaded, on every endpoint; then 200: a genuine sign of readiness."""
        reply = self._call("/health", timeout_s=2.0)
        if reply is None:
            return Health.UNREACHABLE
        return Health.READY if reply.status == 200 else Health.LOADING

    def generate_one(self) -> None:
        """One token over the native endpoint; health alone does not show a stuck decode loop."""
        body = {"prompt": "Hello", "n_predict": 1, "temperature": 0, "cache_prompt": False}
        reply = self._call("/completion", body, timeout_s=60.0)
        document = _document(reply)
        if reply is None or not isinstance(document, dict) or not isinstance(document.get("content"), str):
            shown = "no answer within 60 s" if reply is None else f"HTTP {reply.status}: {reply.body[:200]!r}"
            raise StartError("the server is up but does not generate", evidence=(f"POST /completion: {shown}",))

    def speculation(self) -> SpeculationState:
        """`speculative` of the slots. The depth is not told by any endpoint."""
        slots = _document(self._call("/slots"))
        if not isinstance(slots, list) or not slots:
            return SpeculationState(on=None, depth=None, source="GET /slots (not available)")
        flags = [slot.get("speculative") for slot in slots if isinstance(slot, dict)]
        known = [flag for flag in flags if isinstance(flag, bool)]
        return SpeculationState(on=all(known) if known else None, depth=None, source="GET /slots")

    def limits(self) -> ServerLimits:
        """Its slots. Their contexts may share one cache, which no endpoint tells."""
        slots = _document(self._call("/slots"))
        known = isinstance(slots, list) and bool(slots)
        return ServerLimits(max_running_requests=len(slots) if known and isinstance(slots, list) else None)

    def counters(self) -> Counters:
        """From /metrics, which is off unless the server was started with --metrics."""
        reply = self._call("/metrics")
        if reply is None or reply.status != 200:
            return Counters()
        text = reply.body.decode("utf-8", "replace")

        def count(name: str) -> int | None:
            return _count(text, f"llamacpp:{name}_total")

        return Counters(
            drafts=count("spec_decode_num_drafts"),
            drafted_tokens=count("spec_decode_num_draft_tokens"),
            accepted_tokens=count("spec_decode_num_accepted_tokens"),
            output_tokens=count("tokens_predicted"),
            by_position=_counts(by_label(text, f"llamacpp:{_BY_POSITION}_total", "position", _DEEPEST)),
            raw=text,
        )

    def activity(self) -> Activity:
        """Slots at work, from /slots; queued requests from /metrics where it is on."""
        slots = _document(self._call("/slots"))
        flags = [s.get("is_processing") for s in slots if isinstance(s, dict)] if isinstance(slots, list) else []
        busy = [flag for flag in flags if isinstance(flag, bool)]
        # a slot that does not say may be at work: then the number is not known
        running = sum(busy) if isinstance(slots, list) and slots and len(busy) == len(slots) else None
        metrics = self._call("/metrics")
        queued = None
        if metrics is not None and metrics.status == 200:
            queued = _count(metrics.body.decode("utf-8", "replace"), "llamacpp:requests_deferred")
        return Activity(running=running, queued=queued)

    def fresh(self) -> None:
        """Nothing: measured requests are sent with the prompt cache switched off."""


def _document(reply: Reply | None) -> object:
    """What a good answer says; None for any other, and for one that is no JSON."""
    if reply is None or reply.status != 200:
        return None
    try:
        return reply.json()
    except (ValueError, RecursionError):
        return None


def _count(text: str, name: str) -> int | None:
    """A metric as a count; None when it is absent or cannot be one: not a number, infinite, below zero, absurd."""
    value = total(text, name)
    if value is None or not math.isfinite(value) or not 0 <= value <= _LARGEST:
        return None
    return round(value)


def _counts(values: Sequence[float]) -> tuple[int, ...]:
    """The same of several; none where one of them cannot be a count."""
    if not all(math.isfinite(value) and 0 <= value <= _LARGEST for value in values):
        return ()
    return tuple(round(value) for value in values)
