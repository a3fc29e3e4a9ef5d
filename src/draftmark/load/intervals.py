"""How far a figure can be trusted: where another run of the same load would put it, 19 times in 20. Pure.

Within one run: the requests, in the order sent, are cut into sections of equal number, each gives the figure anew,
and their scatter tells that of the whole (sectioning; throughput by spans of equal time). Neighbours share what
disturbs them, which the scatter of single requests would miss. Over several runs: the scatter of the runs. In
either case Student's t, times the square root of two, since the other run scatters as well.

No interval is narrower than what the client can tell apart: 0.3 ms or 1 %, whichever is more. `docs/bench.md` has
what was measured of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from draftmark.load.spreads import spread, weighted_spread
from draftmark.load.timings import amortised_ms, e2e_ms, tpot_ms, ttft_ms
from draftmark.load.window import rates
from draftmark.model import Interval, Measurement, RequestRecord, Spread

_SECTIONS, _FEW_SECTIONS = 10, 5  # few and long ones where requests are few: neighbours share what disturbs them
_PER_SECTION = 20
_FEWEST_REQUESTS = 20
_RESOLUTION_MS, _RESOLUTION = 0.3, 0.01
# Student's t, 97.5 %, by degrees of freedom; beyond the table the next lower entry, which is on the safe side.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

Figures = dict[str, float | None]
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
    whole, out = figures(m), {}
    done = [r for r in records if not r.warmup and r.error is None]
    if len(done) < _FEWEST_REQUESTS:
        return {}
    count = max(_FEW_SECTIONS, min(_SECTIONS, len(done) // _PER_SECTION))
    borders = [round(len(done) * place / count) for place in range(count + 1)]
    sections = [_latencies(done[a:b]) for a, b in pairwise(borders)]
    for name, value in whole.items():
        seen = [figure for section in sections if (figure := section.get(name)) is not None]
        if value is not None and len(seen) >= _FEW_SECTIONS:
            out[name] = _around(name, value, seen)
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


def _around(name: str, value: float, seen: Sequence[float]) -> Interval:
    deviation = math.sqrt(math.fsum((x - value) ** 2 for x in seen) / (len(seen) - 1))
    reach = _T[min(len(seen) - 1, len(_T)) - 1] * deviation * math.sqrt(2.0 / len(seen))
    least = max(_RESOLUTION * abs(value), _RESOLUTION_MS if "_ms" in name else 0.0)
    reach = max(reach, least)
    return Interval(low=max(0.0, value - reach), high=value + reach)


def _latencies(done: Sequence[RequestRecord]) -> Figures:
    """The latencies of a section."""
    read: dict[str, Callable[[RequestRecord], float | None]] = {
        "ttft_ms": ttft_ms,
        "ttft_intended_ms": lambda r: ttft_ms(r, intended=True),
        "tpot_ms": tpot_ms,
        "e2e_ms": e2e_ms,
        "e2e_intended_ms": lambda r: e2e_ms(r, intended=True),
    }
    found = {name: spread(ms for r in done if (ms := of(r)) is not None) for name, of in read.items()}
    found["itl_ms"] = weighted_spread(pair for r in done for pair in amortised_ms(r))
    return {f"{name}.{q}": getattr(values, q) for name, values in found.items() for q in QUANTILES}
