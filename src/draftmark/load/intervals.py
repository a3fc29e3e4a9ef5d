"""How far a figure can be trusted: where another run of the same load would put it, 19 times in 20. Pure.

Within one run: the requests, in the order sent, are cut into sections of equal number, each gives the figure anew,
and their scatter tells that of the whole (sectioning; throughput by spans of equal time). Neighbours share what
disturbs them, which the scatter of single requests would miss. A quantile has a second interval, by inversion: how
the share of values below it scatters over the sections tells how far away in rank another run's may lie (Woodruff
1952). Where values come in steps, as those of whole chunks do, a section may show no scatter although the next step
is a percent of rank away; so the wider bounds of the two count.

Over several runs: the scatter of the runs. In either case Student's t, times the root of two, since the other run
scatters, too. No interval is narrower than what the client can tell apart: 0.3 ms or 1 %, whichever is more.
`docs/bench.md` has what was measured of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from draftmark.load.spreads import percentile
from draftmark.load.timings import e2e_ms, token_gaps_ms, tokens_of, tpot_ms, ttft_ms
from draftmark.load.window import rates
from draftmark.model import Interval, Measurement, RequestRecord, Spread

_SECTIONS, _FEW_SECTIONS = 10, 5  # few and long ones where requests are few: neighbours share what disturbs them
_PER_SECTION = 20
_FEWEST_REQUESTS = 20
_RESOLUTION_MS, _RESOLUTION = 0.3, 0.01
_RESOLUTION_RANK = 0.005  # what disturbs one token in 200 may be in one run and in no section of another
# Student's t, 97.5 %, by degrees of freedom; beyond the table its last entry, which is on the safe side.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

Figures = dict[str, float | None]
_Values = Callable[[Sequence[RequestRecord]], list[float]]
_MOST_TOKENS = 20_000  # of a section
LATENCIES = ("ttft_ms", "ttft_intended_ms", "tpot_ms", "itl_ms", "e2e_ms", "e2e_intended_ms")
QUANTILES = ("mean", "p50", "p90", "p95", "p99")


def figures(m: Measurement) -> Figures:
    """The figures of a measurement that get an interval, by name: `output_tok_s`, `ttft_ms.p50`."""
    spreads: dict[str, Spread] = {name: getattr(m, name) for name in LATENCIES}
    out: Figures = {"output_tok_s": m.output_tok_s, "completed_req_s": m.completed_req_s}
    for name, values in spreads.items():
        out |= {f"{name}.{quantile}": getattr(values, quantile) for quantile in QUANTILES}
    return out


def within(records: Sequence[RequestRecord], m: Measurement) -> dict[str, Interval]:
    """From one run; without those for which there are too few requests.

    Args:
        records: Of this measurement, in the order sent, warm-up included.
        m: What they came to.
    """
    done = [r for r in records if not r.warmup and r.error is None]
    if len(done) < _FEWEST_REQUESTS:
        return {}
    count = max(_FEW_SECTIONS, min(_SECTIONS, len(done) // _PER_SECTION))
    borders = [round(len(done) * place / count) for place in range(count + 1)]
    out: dict[str, Interval] = {}
    for name, values in _VALUES.items():
        if name in _INTENDED and m.loop != "open":
            continue
        sections = [_Sample(found) for a, b in pairwise(borders) if (found := values(done[a:b]))]
        if len(sections) >= _FEW_SECTIONS:
            whole = _Sample([value for section in sections for value in section.values])
            out |= _of_sections(name, whole, sections)
    if m.output_tok_s is not None and m.window is not None:
        a, b = m.window.start_at_s, m.window.end_at_s
        spans = [a + (b - a) * place / count for place in range(count + 1)]
        out["output_tok_s"] = _around(
            "output_tok_s", m.output_tok_s, [rate or 0.0 for rate in rates(records, spans)]
        )
    return out


def between(runs: Sequence[Mapping[str, float | None]]) -> tuple[Figures, dict[str, Interval]]:
    """From several runs of the same load: the mean of each figure, and where another so many runs' mean would lie.

    Args:
        runs: Each run's `figures`.
    """
    means: Figures = {}
    found: dict[str, Interval] = {}
    for name in runs[0] if runs else ():
        seen = [value for run in runs if (value := run.get(name)) is not None]
        means[name] = math.fsum(seen) / len(seen) if len(seen) == len(runs) else None
        mean = means[name]
        if mean is not None and len(seen) > 1:
            found[name] = _around(name, mean, seen)
    return means, found


# --- one run ----------------------------------------------------------------------------------------------


class _Sample:
    """Values in order."""

    def __init__(self, values: list[float]) -> None:
        values.sort()
        self.values = values
        self.mean = math.fsum(values) / len(values) if values else 0.0

    def quantile(self, share: float) -> float:
        """Linear between ranks."""
        found = percentile(self.values, 100 * min(1.0, max(0.0, share)))
        return found if found is not None else 0.0

    def share(self, value: float) -> float:
        """Of it all, what is not above a value."""
        return bisect_right(self.values, value) / len(self.values)


def _of_sections(name: str, whole: _Sample, sections: Sequence[_Sample]) -> dict[str, Interval]:
    out = {f"{name}.mean": _around(name, whole.mean, [section.mean for section in sections])}
    for quantile in QUANTILES[1:]:
        share = int(quantile[1:]) / 100
        value = whole.quantile(share)
        scatter = _around(name, value, [section.quantile(share) for section in sections])
        shares = [section.share(value) for section in sections]
        reach = max(_reach(math.fsum(shares) / len(shares), shares), _RESOLUTION_RANK)
        out[f"{name}.{quantile}"] = Interval(
            low=min(scatter.low, whole.quantile(share - reach)),
            high=max(scatter.high, whole.quantile(share + reach)),
        )
    return out


def _around(name: str, value: float, seen: Sequence[float]) -> Interval:
    least = max(_RESOLUTION * abs(value), _RESOLUTION_MS if "_ms" in name else 0.0)
    reach = max(_reach(value, seen), least)
    return Interval(low=max(0.0, value - reach), high=value + reach)


def _reach(value: float, seen: Sequence[float]) -> float:
    """How far from it another run's may lie, by the scatter of its parts around it."""
    deviation = math.sqrt(math.fsum((x - value) ** 2 for x in seen) / (len(seen) - 1))
    return _T[min(len(seen) - 1, len(_T)) - 1] * deviation * math.sqrt(2.0 / len(seen))


def _once(read: Callable[[RequestRecord], float | None]) -> _Values:
    """A figure that each request has once."""
    return lambda records: [ms for r in records if (ms := read(r)) is not None]


def _per_token(records: Sequence[RequestRecord]) -> list[float]:
    """Of very many tokens every so manieth: neighbours within an answer tell nearly the same."""
    step = 1 + sum(map(tokens_of, records)) // _MOST_TOKENS
    return [ms for r in records for ms in token_gaps_ms(r)[::step]]


_INTENDED = frozenset({"ttft_intended_ms", "e2e_intended_ms"})
_VALUES: dict[str, _Values] = {
    "ttft_ms": _once(ttft_ms),
    "ttft_intended_ms": _once(lambda r: ttft_ms(r, intended=True)),
    "tpot_ms": _once(tpot_ms),
    "itl_ms": _per_token,
    "e2e_ms": _once(e2e_ms),
    "e2e_intended_ms": _once(lambda r: e2e_ms(r, intended=True)),
}
