"""What a forecast says in a result: of arms not measured, and of each step beside what it showed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftmark.model import Arm, TrialStatus
from draftmark.run.records import FORECAST, NEXT, RunRecord
from draftmark.tune.forecast import Forecast
from draftmark.tune.observing import rounded
from draftmark.tune.search import Search
from draftmark.tune.steering import Next, Told


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Of one run; of a grid, and until the baseline has figures, nothing.

    Attributes:
        told: What the run has shown; None of a grid.
        search: By all that.
    """

    told: Told | None
    search: Search | None

    @classmethod
    def of(cls, record: RunRecord) -> Forecasts:
        """By the records alone."""
        if record.info.search != FORECAST:
            return cls(None, None)
        told = Told(record)
        return cls(told, told.search())

    def arm(self, arm: Arm) -> dict[str, Any]:
        """The fields of an arm that has no trial, or of one that was left after a trial in vain; else none."""
        told, search = self.told, self.search
        if told is None or search is None or any(t.arm == arm for t in told.trials):
            return {}
        if arm.knobs or arm.name in told.info.refused:
            return {}
        if arm.depth in search.refused:  # a shallower one did not start
            return {"status": TrialStatus.REFUSED.value, "because": search.refused[arm.depth]}
        forecast, base = search.forecast, told.info.baseline.depth
        length = forecast.acceptance.length(arm.depth)
        low, high = min(told.info.concurrency), max(told.info.concurrency)
        return {
            "status": TrialStatus.PREDICTED.value,
            "because": self._words(forecast, arm, low),
            "latency": _figure(forecast, arm.depth, base, low),
            "throughput": _figure(forecast, arm.depth, base, high),
            "accept_len": rounded(length.mean) if arm.depth else None,
            "accept_len_low": rounded(length.low) if arm.depth else None,
            "accept_len_high": rounded(length.high) if arm.depth else None,
            "accept_len_basis": length.basis.value if arm.depth else None,
            "tokens_per_step": rounded(forecast.acceptance.per_pass(arm.depth)) if arm.depth else None,
        }

    def _words(self, forecast: Forecast, arm: Arm, concurrency: int) -> str:
        assert self.told is not None  # noqa: S101 - asked of forecasts alone
        ratio = forecast.ratio(arm.depth, self.told.info.baseline.depth, concurrency)
        return f"{ratio.mean:.2f}x ({ratio.low:.2f}\u2013{ratio.high:.2f}) by forecast"

    def knobs(self) -> list[dict[str, Any]] | None:
        """Of each knob that was searched: whether it matters and how much; None of a run without knobs."""
        if self.told is None or not self.told.info.knobs:
            return None
        run = self.told.knobs(self.search)
        return [] if run is None else run.document()

    def preferred(self) -> tuple[str, ...]:
        """Names of arms that go first among ties."""
        return () if self.told is None else self.told.preferred()

    def steps(self) -> list[dict[str, Any]]:
        """Each trial that was asked for: why, what was expected, what it showed."""
        told = self.told
        if told is None:
            return []
        asked = {
            a.trial: a for a in told.record.actions if a.what == NEXT
        }  # a resumed run asks again: the last counts
        found = []
        for number, action in sorted(asked.items(), key=lambda pair: pair[0] or 0):
            predicted = {str(c): f for c, f in (action.detail.get("predicted") or {}).items()}
            measured = {} if number is None else told.figures(number)
            found.append(
                {
                    "trial": number,
                    "arm": action.detail.get("arm"),
                    "because": action.detail.get("because"),
                    "predicted": predicted,
                    "measured": {str(c): rounded(value) for c, value in measured.items()},
                    "error": {
                        str(c): rounded(predicted[str(c)]["tok_s"] / value - 1.0)
                        for c, value in measured.items()
                        if str(c) in predicted
                    },
                }
            )
        return found


def asked_for(step: Next) -> dict[str, object]:
    """The detail of the action that asks for a trial."""
    if step.slot is None:
        return {"because": step.because}
    return {
        "arm": step.slot.arm.name,
        **({"depth": step.slot.arm.depth, "knobs": step.slot.arm.knobs} if step.slot.arm.knobs else {}),
        "round": step.slot.round,
        "because": step.because,
        "predicted": {
            str(c): {"tok_s": rounded(f.mean), "low": rounded(f.low), "high": rounded(f.high)}
            for c, f in step.predicted.items()
        },
    }


def _figure(forecast: Forecast, depth: int, base: int, concurrency: int) -> dict[str, Any]:
    found, ratio = forecast.tok_s(depth, concurrency), forecast.ratio(depth, base, concurrency)
    return {
        "tok_s": rounded(found.mean),
        "tok_s_low": rounded(found.low),
        "tok_s_high": rounded(found.high),
        "ratio": rounded(ratio.mean),
        "low": rounded(ratio.low),
        "high": rounded(ratio.high),
    }
