"""The search against recorded figures: no server is started. What it did, as a result document. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.model import Arm
from draftmark.tune.forecast import Figure, Forecast, Seen
from draftmark.tune.search import Candidate, Choice, Problem, Search
from draftmark.tune.surface_file import Entry, Surface

_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One restart.

    Attributes:
        because: Why this depth.
        predicted: Tokens per second by concurrency, as forecast before it was measured.
        measured: The same as recorded.
    """

    depth: int
    because: str
    predicted: Mapping[int, Figure]
    measured: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A search that is over.

    Attributes:
        tried: In order; each cost a restart.
        stop: Why there is none after the last.
    """

    surface: Surface
    tried: tuple[Tried, ...]
    stop: str
    choice: Choice
    forecast: Forecast
    refused: Mapping[int, str]

    @property
    def better(self) -> bool:
        """Something other than the baseline is recommended."""
        return self.choice.depth != self.surface.baseline

    @property
    def exit_status(self) -> int:
        """As of `tune` without `--keep`: 10 where something better was found, else 0."""
        return 10 if self.better else 0


def problem_of(surface: Surface) -> Problem:
    """What the search is told of a surface: not its figures."""
    return Problem(
        candidates=tuple(
            Candidate(depth=e.depth, refused=e.refused, running=e.running) for e in surface.entries.values()
        ),
        baseline=surface.baseline,
        latency=surface.latency,
        throughput=surface.throughput,
        margin=surface.margin,
        noise=surface.noise,
        minutes={} if surface.minutes is None else dict.fromkeys(surface.entries, surface.minutes),
        trees=surface.trees,
        experts=surface.experts,
    )


def replay(surface: Surface) -> Replay:
    """Ask and tell until it is enough."""
    search = Search(problem_of(surface))
    search.tell(_seen(surface.entries[surface.baseline]))
    tried: list[Tried] = []
    while True:
        step = search.ask()
        if step.depth is None:
            break
        predicted = {c: search.forecast.tok_s(step.depth, c) for c in search.problem.concurrencies}
        entry = surface.entries[step.depth]
        tried.append(Tried(depth=step.depth, because=step.because, predicted=predicted, measured=entry.tok_s))
        search.tell(_seen(entry))
    return Replay(
        surface=surface,
        tried=tuple(tried),
        stop=step.because,
        choice=search.choice(),
        forecast=search.forecast,
        refused=search.refused,
    )


def _seen(entry: Entry) -> Seen:
    return Seen(depth=entry.depth, tok_s=entry.tok_s, acceptance=entry.acceptance)


# --- the document -----------------------------------------------------------------------------------------


def document(done: Replay, source: str) -> dict[str, Any]:
    """`draftmark.tune/1`, with what only a search has: `steps`, `assumed`, intervals of predicted arms."""
    surface, choice = done.surface, done.choice
    levels = sorted({c for c in (surface.latency, surface.throughput) if c is not None})
    arms = [_arm(done, entry) for entry in surface.entries.values()]
    return {
        "schema": "draftmark.tune/1",
        "source": source,
        "service": None,
        "concurrency": levels,
        "depths": list(surface.entries),
        "tie_margin": surface.margin,
        "noise": surface.noise,
        "objective": {"latency": surface.latency, "throughput": surface.throughput},
        "baseline": {"arm": Arm(surface.baseline).name, "depth": surface.baseline},
        "arms": arms,
        "front": _front(done),
        "choice": {
            "latency": _best_at(done, surface.latency),
            "throughput": _best_at(done, surface.throughput),
            "recommended": Arm(choice.depth).name,
            "depth": choice.depth,
            "ties": [Arm(k).name for k in choice.ties],
            "because": choice.because,
            "by_workload": {},
        },
        "verdict": choice.because,
        "exit_status": done.exit_status,
        "restarts": len(done.tried),
        "downtime_s": _round(len(done.tried) * surface.minutes * 60.0) if surface.minutes is not None else None,
        "restored": None,
        "kept": None,
        "complete": True,
        "steps": [_step(step) for step in done.tried],
        "stop": done.stop,
        "assumed": list(surface.assumed),
    }


def _measured(done: Replay) -> list[int]:
    """Depths that were measured, the baseline first."""
    return [done.surface.baseline, *(step.depth for step in done.tried)]


def _arm(done: Replay, entry: Entry) -> dict[str, Any]:
    status = "refused" if entry.depth in done.refused else "predicted"
    if entry.depth in _measured(done):
        status = "measured"
    surface = done.surface
    return {
        "arm": Arm(entry.depth).name,
        "depth": entry.depth,
        "label": Arm(entry.depth).label,
        "status": status,
        "because": done.refused.get(entry.depth),
        "latency": _figure(done, entry, status, surface.latency),
        "throughput": _figure(done, entry, status, surface.throughput),
        **_acceptance(done, entry, status),
        "fit": {"fits": status != "refused", "max_running_requests": entry.running},
        "why": None,
    }


def _figure(done: Replay, entry: Entry, status: str, concurrency: int | None) -> dict[str, Any] | None:
    """As recorded where it was measured, else as forecast; the ratio is the forecast's, by all figures."""
    if concurrency is None or status == "refused":
        return None
    ratio = done.forecast.ratio(entry.depth, done.surface.baseline, concurrency)
    found = done.forecast.tok_s(entry.depth, concurrency)
    figures = {
        "concurrency": concurrency,
        "tok_s": _round(entry.tok_s[concurrency] if status == "measured" else found.mean),
        "ratio": _round(ratio.mean),
        "low": _round(ratio.low),
        "high": _round(ratio.high),
    }
    if status == "predicted":
        figures |= {"tok_s_low": _round(found.low), "tok_s_high": _round(found.high)}
    return figures


def _acceptance(done: Replay, entry: Entry, status: str) -> dict[str, Any]:
    if entry.depth == 0 or status == "refused":
        return {"accept_len": None, "accept_len_low": None, "accept_len_high": None, "accept_len_basis": None}
    length = done.forecast.acceptance.length(entry.depth)
    return {
        "accept_len": _round(length.mean),
        "accept_len_low": _round(length.low),
        "accept_len_high": _round(length.high),
        "accept_len_basis": length.basis.value,
    }


def _step(step: Tried) -> dict[str, Any]:
    return {
        "arm": Arm(step.depth).name,
        "depth": step.depth,
        "because": step.because,
        "predicted": {
            str(c): {"tok_s": _round(f.mean), "low": _round(f.low), "high": _round(f.high)}
            for c, f in step.predicted.items()
        },
        "measured": {str(c): _round(step.measured[c]) for c in step.predicted},
        "error": {str(c): _round(f.mean / step.measured[c] - 1.0) for c, f in step.predicted.items()},
    }


def _best_at(done: Replay, concurrency: int | None) -> str | None:
    """The choice at one concurrency alone: the shallowest measured depth within the margin of the best there."""
    if concurrency is None:
        return None
    ratios = {k: done.forecast.ratio(k, done.surface.baseline, concurrency) for k in sorted(_measured(done))}
    margin = 1.0 + done.surface.margin
    top = max(figure.mean for figure in ratios.values())
    depth = next(k for k, figure in ratios.items() if figure.mean * margin >= top)
    if ratios[depth].mean < margin or ratios[depth].low <= 1.0:
        depth = done.surface.baseline
    return Arm(depth).name


def _front(done: Replay) -> list[str]:
    """Measured depths that no other beats on one axis without losing on the other, by their ratios."""
    levels = [c for c in (done.surface.latency, done.surface.throughput) if c is not None]
    points = {
        k: [done.forecast.ratio(k, done.surface.baseline, c).mean for c in levels] for k in sorted(_measured(done))
    }
    lead = 1.0 + done.surface.margin
    return [
        Arm(k).name
        for k, own in points.items()
        if not any(
            all(o * lead >= s for o, s in zip(other, own, strict=True))
            and any(o >= s * lead for o, s in zip(other, own, strict=True))
            and sum(other) > sum(own)
            for other in points.values()
        )
    ]


def _round(value: float) -> float:
    """To five significant digits."""
    return float(f"{value:.{_DIGITS}g}")
