"""Events and tracebacks → faults: what failed in a stream, and what that means where it happened. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from draftmark.postmortem.events import Event
from draftmark.postmortem.model import Line, Phase
from draftmark.postmortem.tables import Sign, Tables
from draftmark.postmortem.tracebacks import Raised, Trace, frames_in

_ECHO_TYPES = frozenset(
    (
        "EOFError", "EngineDeadError", "MQEngineDeadError", "AsyncEngineDeadError", "BrokenPipeError",
        "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "KeyboardInterrupt",
        "SystemExit", "CancelledError", "CalledProcessError", "ChildFailedError", "ProcessRaisedException",
        "SigquitError",
    )
)  # fmt: skip
_LOADER = ("load_weights", "weight_loader", "load_model", "get_model", "weight_utils", "model_loader", "loader.py")
_ARGUMENTS = (
    "server_args.py", "arg_utils.py", "cli_args.py", "check_server_args", "prepare_server_args",
    "from_cli_args", "create_engine_config", "create_model_config", "/config/", "config.py:__post_init__",
    "argparse.py", "pydantic", "validate_",
)  # fmt: skip
_POOL = (
    "memory_pool", "init_memory_pool", "kv_cache_utils", "initialize_kv_cache", "_allocate_kv_cache",
    "init_kv_cache", "allocate_kv", "determine_num_available_blocks", "cache_engine", "init_mamba",
    "create_kv",
)  # fmt: skip
_CAPTURE = ("cuda_graph", "capture_model", "capture_one", "cudagraph", "CudaGraph", ":capture", "graph_runner")
_ACTIVATION = ("profile_run", "_dummy_run", "_dummy_sampler", "determine_available_memory", "warmup", "warm_up")
_CLIENT = (
    "aiohttp/client", "aiohttp/http_writer", "aiohttp/connector", "-packages/httpx/", "-packages/httpcore/",
    "-packages/openai/", "-packages/requests/", "-packages/urllib3/", "-packages/locust/", "genai_perf",
    "guidellm",
)  # fmt: skip
_WORDLESS = frozenset(("TimeoutError", "Empty", "CancelledError"))
_MISSING_INTERFACE = re.compile(
    r"'\w+(?:ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)' object has no attribute"
)
_WEIGHT_NAME = re.compile(
    r"^'[\w.\-]*(?:weight|bias|proj|embed|norm|scale|layers?\.\d|lm_head|expert|qkv)[\w.\-]*'"
)
_CONFIG_TYPES = frozenset(
    (
        "ValueError", "AssertionError", "TypeError", "ValidationError", "NotImplementedError", "RuntimeError",
        "KeyError", "AttributeError", "ImportError",
    )
)  # fmt: skip
_REFUSALS = frozenset(("config-invalid", "unsupported-model-feature"))


@dataclass(slots=True)
class Fault:
    """Something that failed, with the cause that it would be.

    Attributes:
        what: In plain words.
        wrapper: It only reports a failure elsewhere.
        symptom: A deeper cause may stand in another source.
        survived: The server went on afterwards.
        support: Further lines that belong to it.
    """

    cause: str
    certain: bool
    line: Line
    order: int
    what: str
    wrapper: bool = False
    symptom: bool = False
    request: bool = False
    client: bool = False
    survived: bool = False
    phase: Phase | None = None
    sign: Sign | None = None
    trace: Trace | None = None
    support: list[Line] = field(default_factory=list)


class Stage:
    """How far a start had come at each place of a stream."""

    def __init__(self, events: Sequence[Event], engine: str | None) -> None:
        self._marks = [event for event in events if event.role in _MARKS]
        self._engine = engine
        starts = [event.line.text for event in events if event.role == "start"]
        self.speculates = any(_SPECULATES.search(text) for text in starts)

    def warming_up(self, order: int) -> bool:
        """Whether HTTP was up and readiness was not: the engine's own first request."""
        seen = {event.role for event in self._marks if event.order <= order}
        return "http-up" in seen and "ready" not in seen

    def phase(self, order: int, *, before_stop: bool = False) -> Phase | None:
        """Startup, serving or shutdown; None when nothing tells.

        Args:
            order: Place in the stream.
            before_stop: What it was doing when it was asked to stop.
        """
        seen = [event.role for event in self._marks if event.order <= order]
        if before_stop:
            seen = [role for role in seen if role not in ("stop", "drain")]
        if not seen:
            later = next((event.role for event in self._marks if event.order > order), "")
            return Phase.STARTUP if later in ("start", "starting", "weights-begin") else None
        if "drain" in seen or "stop" in seen:
            return Phase.SHUTDOWN
        if "ready" in seen or ("http-up" in seen and self._engine not in ("sglang", "vllm")):
            return Phase.SERVING
        if "traffic" in seen and self._engine not in ("sglang", None):
            return Phase.SERVING
        # A start without its ready line: what looks like traffic is SGLang's own warm-up.
        return Phase.STARTUP if set(seen) - {"traffic", "http-up"} else Phase.SERVING

    def step(self, order: int, actor: str) -> str:
        """`weights`, `pool`, `capture`, `after`, or `` before any of them."""
        step = ""
        for event in self._marks:
            if event.order > order:
                break
            if _other_rank(actor, event.line.actor):
                continue
            step = _STEPS.get(event.role, step)
        return step


_SPECULATES = re.compile(r"""speculative_algorithm['"]?[=:]\s*['"]?(?!None)\w|method=""")

_STEPS = {
    "start": "",
    "starting": "",
    "weights-begin": "weights",
    "loading": "weights",
    "weights-end": "pool",
    "pool": "pool",
    "capture-begin": "capture",
    "capture-end": "after",
    "warm-up": "after",
    "ready": "after",
    "traffic": "after",
}
_MARKS = frozenset((*_STEPS, "http-up", "stop", "drain"))


def _other_rank(one: str, other: str) -> bool:
    """Whether two writers are different ranks; one without a rank, such as the engine's core, speaks for all."""
    ranks = [match[1] for actor in (one, other) if (match := _RANK.search(actor))]
    return len(ranks) > 1 and ranks[0] != ranks[1]


_RANK = re.compile(r"(?:TP|rank)\s?(\d+)")


def find_faults(
    events: Sequence[Event], traces: Sequence[Trace], tables: Tables, stage: Stage, *, first: int
) -> list[Fault]:
    """Faults of one life, in order.

    Args:
        events: Of that life.
        traces: Of the same lines; their `order` counts from `first`.
        tables: What lines mean.
        stage: How far the start had come where.
        first: `order` of the life's first line.
    """
    quoted = {first + order for trace in traces for order in trace.inner}
    found = [fault for trace in traces if (fault := _of_trace(trace, tables, stage, first, events))]
    named = {id(raised.line) for trace in traces for raised in trace.raised}
    for event in events:
        if event.role != "fault" or event.order in quoted or id(event.line) in named or event.line.level in _CALM:
            continue
        found.append(_of_event(event, stage, events))
    return sorted(found, key=lambda fault: fault.order)


_OF_A_REQUEST = re.compile(
    r"(?i)\brequest\b.{0,60}\b(?:failed|aborted|rejected)\b|\brequest aborted\b|\bHTTP 5\d\d\b"
)
_CALM = frozenset(("I", "D"))  # what a logger calls information is not a failure


def _of_event(event: Event, stage: Stage, events: Sequence[Event]) -> Fault:
    sign = event.sign
    cause, certain = sign.cause, sign.strength == "certain"
    support: list[Line] = []
    if cause == "cuda-oom":
        cause, certain = _oom_stage(stage.step(event.order, event.line.actor), (), event.line.text)
        for told in events:
            if told.role in _ALLOCATED and 0 <= told.order - event.order <= _TOLD_AFTER:
                cause, certain = _ALLOCATED[told.role], True
                support.append(told.line)
                break
    cause = _before_ranks_met(cause, sign, stage.phase(event.order))
    return Fault(
        cause=cause,
        certain=certain,
        line=event.line,
        order=event.order,
        what=sign.what,
        wrapper=sign.wrapper or (event.line.level == "W" and "NCCL WARN" not in event.line.text),
        symptom=sign.symptom,
        request=sign.request or bool(_OF_A_REQUEST.search(event.line.text)),
        client=sign.client,
        phase=stage.phase(event.order),
        sign=sign,
        support=support,
    )


_ALLOCATED = {
    "pool-failed": "cuda-oom-kv-pool-init",
    "compute-failed": "cuda-oom-runtime-activation",
    "weights-failed": "cuda-oom-weights-load",
}
"""What llama.cpp says, after a failed allocation, that it was for."""
_TOLD_AFTER = 12


_OTHER_HOLDS = re.compile(
    r"Process \d+ has (?P<other>[\d.]+) GiB memory in use\. "
    r"Including non-PyTorch memory, this process has (?P<own>[\d.]+) GiB"
)


def _oom_stage(step: str, raised: Sequence[Raised], text: str) -> tuple[str, bool]:
    """Which allocation found no GPU memory, and whether that is sure.

    By the call stack or the message; else by how far the start had come.
    """
    held = _OTHER_HOLDS.search(text)
    if held and step != "after" and float(held["other"]) > 2 * float(held["own"]):
        return "gpu-memory-busy-at-start", False
    if "graph failed" in text or (frames_in(raised, *_CAPTURE) and step in ("capture", "pool", "")):
        return "cuda-oom-cuda-graph-capture", True
    if "warming up sampler" in text or frames_in(raised, *_ACTIVATION):
        return "cuda-oom-runtime-activation", True
    if step == "after":
        return "cuda-oom-runtime-activation", True
    if frames_in(raised, *_POOL):
        return "cuda-oom-kv-pool-init", True
    if frames_in(raised, *_LOADER, "create_weights"):
        return "cuda-oom-weights-load", True
    cause = {
        "weights": "cuda-oom-weights-load",
        "pool": "cuda-oom-kv-pool-init",
        "capture": "cuda-oom-cuda-graph-capture",
    }.get(step, "cuda-oom-runtime-activation")
    return cause, step in ("weights", "capture")


def _of_trace(trace: Trace, tables: Tables, stage: Stage, first: int, events: Sequence[Event]) -> Fault | None:
    order = first + trace.order
    phase = stage.phase(order)
    clients = frames_in(trace.raised, *_CLIENT)
    links = [raised for raised in trace.raised if clients or not _is_echo(raised, tables)]
    if not links:
        return None
    header = trace.begin.text.partition("Traceback")[0]
    request = _is_request(order, events)
    choice = _named(links, tables, phase)
    if choice is None:
        raised, sign, cause = links[0], None, _unnamed(links, header, phase, stage, order)
        certain = (any(link.message for link in links) or raised.name == "AssertionError") and not trace.broken
        what = f"{raised.name} in the engine"
    else:
        raised, sign = choice
        cause, certain, what = sign.cause, sign.strength == "certain", sign.what
        if cause in _REFUSALS:
            cause = _refusal(sign, links, tables)
        cause = _before_ranks_met(cause, sign, phase)
    if cause == "cuda-oom":
        text = " ".join(link.text for link in links)
        cause, certain = _oom_stage(stage.step(order, trace.begin.actor), links, text)
    said = [line for line in raised.more if _TELLS.search(line.text)]
    support = [link.line for link in links if link is not raised] + (said[:2] or raised.more[:2])
    if raised.code is not None and not raised.message:
        support.insert(0, raised.code)
    heads = [e.line for e in events if e.role in ("fatal", "headline") and order - _HEAD_LINES <= e.order <= order]
    support[:0] = heads[-1:] or ([trace.begin] if header.strip() else [])
    return Fault(
        cause=cause,
        certain=certain,
        line=raised.line,
        order=order,
        what=what,
        wrapper=bool(sign and sign.wrapper),
        symptom=bool(sign and sign.symptom),
        request=request,
        client=sign.client if sign else clients,
        phase=phase,
        sign=sign,
        trace=trace,
        support=support,
    )


def _before_ranks_met(cause: str, sign: Sign, phase: Phase | None) -> str:
    """A peer that NCCL cannot reach while the ranks are being connected is a failed connection, not a death."""
    return "nccl-init-error" if sign.id == "nccl.remote" and phase is Phase.STARTUP else cause


_TELLS = re.compile(r"(?i)error|not found|failed|cannot|unable|fatal|gated")
_HEAD_LINES = 5  # a logger may print dumps between the headline and the traceback


def _is_request(order: int, events: Sequence[Event]) -> bool:
    return any(event.role == "request" and order - 3 <= event.order <= order for event in events)


def _is_echo(raised: Raised, tables: Tables) -> bool:
    if raised.name in _ECHO_TYPES:
        return True
    return any(
        sign.role in ("echo", "child-exit")
        for hint, signs in tables.by_hint.items()
        if hint in raised.text
        for sign in signs
        if sign.search(raised.text)
    )


_WORDS = 6  # further lines of a message that speak for the exception: what comes later is a tool's output


def _signs_of(raised: Raised, tables: Tables, *, startup: bool) -> list[Sign]:
    """Fault signs that an exception's own words fulfil; noise among them cancels all."""
    texts = [raised.text, *(line.text for line in raised.more[:_WORDS])]
    found: dict[str, Sign] = {}
    for place, text in enumerate(texts):
        for hint, signs in tables.by_hint.items():
            if hint in text:
                for sign in signs:
                    sure = place == 0 or sign.strength == "certain"  # a guess needs the exception's own first words
                    if sure and sign.voice in ("app", "any") and sign.id not in found and sign.search(text):
                        found[sign.id] = sign
    if any(sign.role == "noise" and not sign.id.endswith("advice") for sign in found.values()):
        return []
    return [s for s in found.values() if s.role == "fault" and (startup or s.only_in != "exception")]


def _named(links: Sequence[Raised], tables: Tables, phase: Phase | None) -> tuple[Raised, Sign] | None:
    """The exception of the chain that names a cause, and by which sign: the first; a certain one before a guess."""
    startup = phase in (Phase.STARTUP, None)
    best: tuple[tuple[bool, bool, int], Raised, Sign] | None = None
    for place, raised in enumerate(links):
        for sign in _signs_of(raised, tables, startup=startup):
            weight = (sign.wrapper, sign.strength != "certain", place)
            if best is None or weight < best[0]:
                best = (weight, raised, sign)
    if best is None:
        return None
    (wrapper, guess, place), raised, sign = best
    wordless = links[0].name in _WORDLESS and not links[0].message
    if place and (wrapper or guess) and not wordless and links[0].name not in _GENERIC:
        return None  # an ordinary exception came first; a later one merely talks like this
    return raised, sign


_GENERIC = frozenset(("RuntimeError", "Exception", "ValueError", "OSError"))


def _refusal(sign: Sign, links: Sequence[Raised], tables: Tables) -> str:
    """A refused setting, or a model that the engine cannot serve: by where it was raised, then by the words."""
    if frames_in(links, *_ARGUMENTS) or sign.strength == "certain":
        return "config-invalid" if sign.strength != "certain" else sign.cause
    said = {s.cause for raised in links for s in _signs_of(raised, tables, startup=True)}
    return "unsupported-model-feature" if "unsupported-model-feature" in said else sign.cause


def _unnamed(links: Sequence[Raised], header: str, phase: Phase | None, stage: Stage, order: int) -> str:
    """The cause that an exception without words of its own stands for, by its type and place."""
    root = links[0]
    if phase not in (Phase.STARTUP, None):
        return "python-exception-scheduler"
    loading = frames_in(links, *_LOADER)
    if stage.warming_up(order) and root.frames and "/attention/" in root.frames[-1] and stage.speculates:
        return "config-invalid"  # accepted at the start, impossible at the first request: backend against drafter
    if root.name == "KeyError" and (_WEIGHT_NAME.match(root.message) or frames_in(links, "load_weights")):
        return "model-load-error"
    if root.name == "AttributeError" and _MISSING_INTERFACE.search(root.message):
        return "unsupported-model-feature"
    if root.name in ("AssertionError", "ValueError") and frames_in(links, "weight_loader", "load_weights"):
        return "model-load-error"
    if root.name in _CONFIG_TYPES and "hit an exception" not in header and frames_in(links, *_ARGUMENTS):
        return "config-invalid"
    if root.name == "FileNotFoundError" and loading:
        return "model-load-error"
    serving = phase is None and ("hit an exception" in header or frames_in(links, "event_loop", "run_busy_loop"))
    if serving and not stage.step(order, ""):
        return "python-exception-scheduler"
    return "python-exception-startup"


def mark_survived(faults: Iterable[Fault], events: Sequence[Event]) -> None:
    """Mark the faults after which the server went on: it got further, or kept on serving, and was not torn down."""
    ends = [e.order for e in events if e.role in ("teardown", "child-exit", "exit", "fatal", "oom-kill", "killed")]
    for fault in faults:
        if any(order >= fault.order - 2 for order in ends):
            deadly = min((order for order in ends if order >= fault.order - 2), default=None)
        else:
            deadly = None
        fault.survived = _went_on(fault, events, deadly)


_FURTHER = frozenset(
    ("starting", "weights-begin", "weights-end", "pool", "capture-begin", "capture-end", "ready", "http-up")
)


def _went_on(fault: Fault, events: Sequence[Event], deadly: int | None) -> bool:
    last = fault.trace.end - fault.trace.order + fault.order if fault.trace else fault.order
    served = 0
    for event in events:
        if event.order <= last or (deadly is not None and event.order >= deadly):
            continue
        if event.role in _FURTHER and (
            _same_speaker(fault.line, event.line) or _much_later(fault.line, event.line)
        ):
            return True
        if event.role == "traffic" and not _same_moment(fault.line, event.line):
            served += 1
    return served >= _SERVED_AFTER


_SERVED_AFTER = 3


def _same_speaker(one: Line, other: Line) -> bool:
    return one.actor == other.actor or not other.actor


def _much_later(one: Line, other: Line) -> bool:
    """Later than a failing rank's neighbours would go on for."""
    return (
        one.time is not None and other.time is not None and one.clock == other.clock and other.time - one.time > 5
    )


def _same_moment(one: Line, other: Line) -> bool:
    """Within two seconds on the same clock: lines of ranks that do not know yet."""
    return (
        one.time is not None and other.time is not None and one.clock == other.clock and other.time - one.time < 2
    )
