"""The wording that every kind of report shares: what a status, an exit status and an axis are called."""

from __future__ import annotations

from draftmark.report import figures
from draftmark.report.figures import UNKNOWN, percent, span
from draftmark.report.view import ALL, ArmView, AxisView, DeathView, Figure, Ratio, ResultView, TrialView

STATUS = {
    "measured": "measured",
    "predicted": "predicted, not measured",
    "did-not-start": "did not start",
    "refused": "refused",
    "void": "void",
    None: "not reached",
}

OUTCOME = {
    0: "Done",
    10: "Better configuration found, not kept",
    20: "Objective missed",
    30: "Refused as unsafe",
    40: "Inconclusive",
    50: "Failed and restored",
    51: "Failed, not restored",
}


def status(name: str | None) -> str:
    """A status for people."""
    return STATUS.get(name, name or UNKNOWN)


def outcome(result: ResultView) -> str:
    """The run in a few words, from its exit status."""
    if result.complete is False:
        return "Incomplete run"
    if result.exit_status is None:
        return "No exit status"
    if result.kept is not None:
        return "Better configuration found and kept"
    return OUTCOME.get(result.exit_status, f"Exit status {result.exit_status}")


def at_once(concurrency: int) -> str:
    """A concurrency: `1 at a time`, `4 at once`."""
    return "1 at a time" if concurrency == 1 else f"{concurrency} at once"


def axis_title(axis: AxisView) -> str:
    """`copy, 4 at once`."""
    workload = "all workloads" if axis.workload == ALL else axis.workload
    return f"{workload}, {at_once(axis.concurrency)}"


def unit(concurrency: int) -> str:
    """What tok/s means at that concurrency."""
    return "decode speed of one request" if concurrency == 1 else "output of all requests together"


def role(axis: AxisView, arm: str, baseline: str | None) -> str:
    """What an arm is on an axis, the strongest word first."""
    if arm == axis.choice:
        return "choice"
    if arm in axis.ties and axis.verdict != "inconclusive":
        return "tie"
    return "baseline" if arm == baseline else "other"


def figure_on(arm: ArmView, axis: AxisView) -> Figure | None:
    """The arm's figure on an axis; a pooled axis keeps its figures with the decision. None if not measured."""
    own = arm.axes.get(axis.name)
    if own is not None and own.tok_s is not None:
        return own
    tok_s = axis.values.get(arm.name)
    return None if tok_s is None else Figure(tok_s=tok_s, ratio=axis.ratios.get(arm.name))


def against_baseline(ratio: Ratio | None) -> str:
    """`1.32x (1.22 to 1.43)`, with a dash for an unknown one."""
    if ratio is None:
        return UNKNOWN
    if ratio.low is None or ratio.high is None:
        return figures.ratio(ratio.ratio)
    return f"{figures.ratio(ratio.ratio)} ({span(ratio.low, ratio.high)})"


HOST = {"cpus": "CPUs", "cpu_model": "CPU", "memory_gib": "memory, GiB", "gpus": "GPUs", "gpu": "GPU"}


def host_fact(key: str) -> str:
    """What a fact of the host is called: `CPU`, `memory, GiB`."""
    return HOST.get(key, key.replace("_", " "))


def restored(result: ResultView) -> str:
    """Whether the service is as it was found."""
    if result.kept is not None:
        return f"{_label(result, result.kept)} kept"
    if result.restored is None:
        return "restored: not recorded"
    if (result.service or "").startswith(("cmd:", "embedded:")):
        return "nothing left running" if result.restored else "something may be left running"
    return "original restored" if result.restored else "original not restored"


def _label(result: ResultView, name: str) -> str:
    return next((arm.label for arm in result.arms if arm.name == name), name)


def in_headline(result: ResultView, said: str | None) -> bool:
    """Whether the verdict says it already."""
    return said is not None and said.rstrip(".") in result.verdict_sentence


def reason(arm: ArmView, result: ResultView) -> str | None:
    """Why an arm has no figures: the cause of its death where one is known, else what its trial saw."""
    death = result.death(arm)
    if death is None:
        return arm.because
    said = f"{_named(death)}: {death.summary}" if death.summary else _named(death)
    # What the trial saw from outside; not a second time the line that is shown as proof.
    seen = arm.because if arm.because and arm.because.strip() not in (death.evidence or "") else None
    return f"{seen}. {said}" if seen else said


def _named(death: DeathView) -> str:
    """`port-in-use (certain)`; `unsettled` is its own confidence."""
    unsettled = death.cause == "unsettled" or death.confidence is None
    return death.cause if unsettled else f"{death.cause} ({death.confidence})"


def proof(arm: ArmView, result: ResultView) -> str | None:
    """The line that proves the cause of an arm's death, with its place."""
    death = result.death(arm)
    return death.evidence if death else None


def trial_note(trial: TrialView, result: ResultView) -> str:
    """Why a trial was set aside: `trial 2 (depth 4), void: the server restarted`."""
    reasons = list(dict.fromkeys([*([trial.because] if trial.because else []), *trial.disturbed]))
    if trial.death is not None:
        reasons.append(", ".join(part for part in (_named(trial.death), trial.death.path) if part))
    kind = "disturbed in part" if trial.counts else status(trial.status)
    return f"trial {trial.number} ({result.label(trial.arm)}), {kind}: {'; '.join(reasons) or 'no reason recorded'}"


def tie_rule(result: ResultView) -> str:
    """What the mark of a tie means in this run."""
    margin = f" or {percent(result.tie_margin)}" if result.tie_margin else ""
    return f"level with the best, within noise{margin}"


def glossary(result: ResultView) -> tuple[tuple[str, str], ...]:
    """How to read the figures: term and meaning."""
    return (
        (
            "Ratio and interval",
            f"1.32x ({span(1.22, 1.43)}) says: 1.32 times the baseline's tokens per second, and the figures at "
            "hand agree with anything from 1.22 to 1.43. The intervals are simultaneous: wide enough to hold for "
            "all arms at once, so that trying many does not make a lucky one look good. An interval that contains "
            "1.00 shows no difference.",
        ),
        (
            "Tie",
            f"An arm that is {tie_rule(result)}. Among ties the shallowest depth is chosen: it drafts less, so it "
            "leaves more memory and more compute for other requests.",
        ),
        (
            "Depth",
            "Draft tokens proposed per verification round; off is speculation switched off.",
        ),
        (
            "Accept length",
            "Tokens gained per verification round, the bonus token included: between 1 and depth + 1. "
            "It is counted over the measurement alone, not since the server started.",
        ),
        (
            "Tokens per step",
            "Output tokens per pass of the model, rounds without a draft included. It bounds the gain; "
            "accept length does not when many rounds have no draft.",
        ),
        *_limits(result),
        (
            "tok/s",
            "For one request: the decode speed of that request. For more: the output of all requests together.",
        ),
        (
            "TTFT, TPOT",
            "Milliseconds to the first token, and per output token after it. The median over requests is shown.",
        ),
        (
            "Void, disturbed",
            "A void trial counts nowhere: the server restarted, the client lagged, or foreign load was seen. "
            "In a trial that was disturbed in part, the measurements that are named count nowhere.",
        ),
    )


def _limits(result: ResultView) -> tuple[tuple[str, str], ...]:
    if not result.limited:
        return ()
    return (
        (
            "Requests at once",
            "How many requests the server works on at a time, by its own word. What is sent beyond that waits, and "
            "the figures are then of the queue as well.",
        ),
    )
