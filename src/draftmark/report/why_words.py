"""The wording that every form of a verdict shares."""

from __future__ import annotations

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Phase, Verdict
from draftmark.report.figures import plural

UNSETTLED = "unsettled"
HEALTHY = frozenset({"healthy-running", "healthy-exit"})

SURE = {
    Confidence.CERTAIN: "certain",
    Confidence.LIKELY: "likely",
    Confidence.UNSETTLED: "nothing that was read proves a cause",
}
DOING = {
    Phase.STARTUP: "during start-up",
    Phase.SERVING: "while serving",
    Phase.SHUTDOWN: "while shutting down",
}
ROLE = {
    "cause": "cause",
    "support": "support",
    "consequence": "followed",
    "state": "state",
    "stop": "stop",
    "exit": "exit",
}
_ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "tgi": "TGI", "trtllm": "TensorRT-LLM"}

# What a section is called, in every form.
EVIDENCE = "Evidence"
RULED_OUT = "Ruled out"
FOLLOWED = "What followed"
SETTLE = "What would settle it"
NOT_EXAMINED = "Not examined"
ADVICE = "Advice"
EXAMINED = "Read"


def is_unsettled(verdict: Verdict) -> bool:
    """Whether it names no cause."""
    return verdict.cause == UNSETTLED


def place(evidence: Evidence) -> str:
    """`journal.log:7`; the name alone where lines have no numbers."""
    return evidence.file if evidence.line is None else f"{evidence.file}:{evidence.line}"


def sureness(verdict: Verdict) -> str:
    """`certain, while serving`; of an unsettled one the phase first, for that much is known."""
    parts = [SURE[verdict.confidence], DOING[verdict.phase] if verdict.phase else ""]
    if verdict.confidence is Confidence.UNSETTLED:
        parts.reverse()
    return ", ".join(part for part in parts if part)


def engine(verdict: Verdict) -> str | None:
    """`SGLang 0.5.17`, as far as it is known."""
    if verdict.engine is None:
        return None
    name = _ENGINES.get(verdict.engine, verdict.engine)
    return f"{name} {verdict.engine_version}" if verdict.engine_version else name


def when(verdict: Verdict) -> str | None:
    """The time of the cause, as its line has it: of an unsettled one the exit's or the last one's."""
    for role in ("cause", "exit"):
        for moment in verdict.timeline:
            if moment.role == role and moment.evidence.time:
                return moment.evidence.time
    return next((evidence.time for evidence in verdict.evidence if evidence.time), None)


def state(verdict: Verdict) -> str | None:
    """Whether the service is gone, where that is not what one expects of the cause."""
    if verdict.cause in HEALTHY or verdict.died is None:
        return None
    if verdict.afterwards:
        return f"died, and {verdict.afterwards}"
    return "the service is gone" if verdict.died else "the service still runs"


def subject(verdict: Verdict) -> tuple[str, ...]:
    """Service, engine, time and state, as far as they are known."""
    return tuple(part for part in (verdict.service, engine(verdict), when(verdict), state(verdict)) if part)


def root(verdict: Verdict) -> str | None:
    """Where to look for the first failure, if it is in a log that was not read."""
    return f"The first failure is elsewhere: {verdict.root_elsewhere}" if verdict.root_elsewhere else None


def sources(verdict: Verdict) -> str:
    """`3 sources`."""
    return plural(len(verdict.examined), "source")
