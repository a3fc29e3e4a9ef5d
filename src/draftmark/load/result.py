"""The `draftmark.bench/1` document, from the records and what was noted beside them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from statistics import geometric_mean
from typing import Any

import msgspec

from draftmark.load.acceptance import categories
from draftmark.load.intervals import LATENCIES, between, figures, within
from draftmark.load.journal import Head, Measured
from draftmark.load.measurement import belonging, measure
from draftmark.load.slo import Slo, goodput
from draftmark.model import Acceptance, Category, Goodput, Measurement, Spread

Document = dict[str, Any]
SPREADS = (*LATENCIES, "chunk_gap_ms", "queue_ms", "chunk_tokens")
_MEANS = (
    "duration_s", "output_tok_s", "total_tok_s", "decode_tok_s", "completed_req_s", "request_rate_wanted",
    "request_rate_sent", "accept_len", "tokens_per_step", "goodput_req_s",
)  # fmt: skip
_SUMS = ("requests", "cut", "output_tokens")
_DIGITS = re.compile("[0-9]+")


def measurement_of(measured: Measured) -> Measurement:
    """The figures of one measurement."""
    ending = measured.ending
    return measure(
        measured.records,
        workload=ending.workload,
        concurrency=ending.concurrency,
        counters=ending.counters,
        client=ending.client,
        assumptions=ending.assumptions,
        disturbed=ending.disturbed,
    )


def derive(head: Head, measured: Iterable[Measured]) -> Document:
    """The document; the keys of a single level stand at the top too.

    Args:
        head: What was asked of whom.
        measured: Each measurement; those of the same workload and concurrency are repetitions.
    """
    slo = Slo(**{f"{name}_ms": limit for name, limit in head.limits_ms.items()}) if head.limits_ms else None
    levels = [_level(runs, slo) for runs in together(measured)]
    loops = {level["loop"] for level in levels}
    document = {
        "schema": "draftmark.bench/1",
        "draftmark": head.draftmark,
        "service": head.service,
        "engine": head.engine,
        "api": head.api,
        "model": head.model,
        "started_at": head.started_at,
        "loop": loops.pop() if len(loops) == 1 else None,
        "slo_ms": head.limits_ms or None,
        "settings": head.settings,
        **(levels[0] if len(levels) == 1 else {}),
        "levels": levels,
    }
    return dict(msgspec.json.decode(msgspec.json.encode(document)))  # what people are shown is what a script reads


def together(measured: Iterable[Measured]) -> list[list[Measured]]:
    """Measurements by level, in the order in which the levels first came: each list holds one level's runs."""
    found: dict[tuple[str, int], list[Measured]] = {}
    for one in measured:
        found.setdefault((one.ending.workload, one.ending.concurrency), []).append(one)
    return list(found.values())


def _level(runs: Sequence[Measured], slo: Slo | None) -> Document:
    measurements = [measurement_of(run) for run in runs]
    each = [_one(run, m, slo) for run, m in zip(runs, measurements, strict=True)]
    if len(each) == 1:
        records = belonging(runs[0].records, measurements[0].workload, measurements[0].concurrency)
        return {**each[0], "repeats": 1, "intervals": within(records, measurements[0]), "runs": []}
    _, intervals = between([figures(m) for m in measurements])
    return {**_mean(each), **_pooled(runs, each), "repeats": len(each), "intervals": intervals, "runs": each}


def _one(run: Measured, m: Measurement, slo: Slo | None) -> Document:
    good = goodput(run.records, slo) if slo is not None else None
    open_loop = m.loop == "open"
    return {
        "workload": m.workload,
        "concurrency": m.concurrency,
        "loop": m.loop,
        "arrival": run.ending.arrival,
        "prompts_sha256": run.ending.prompts_sha256,
        "requests": m.requests,
        "errors": m.errors,
        "cut": m.cut,
        "unsent": dict(run.ending.unsent),
        "stopped_because": run.ending.stopped_because,
        "duration_s": m.duration_s,
        "window": m.window,
        "output_tok_s": m.output_tok_s,
        "total_tok_s": m.total_tok_s,
        "decode_tok_s": geometric_mean([value for _, value in m.decode_tok_s]) if m.decode_tok_s else None,
        "request_rate_wanted": m.request_rate_wanted,
        "request_rate_sent": m.request_rate_sent,
        "completed_req_s": m.completed_req_s,
        "output_tokens": m.output_tokens,
        "prompt_tokens": m.prompt_tokens,
        "headline": {
            "ttft": "ttft_intended_ms" if open_loop else "ttft_ms",
            "e2e": "e2e_intended_ms" if open_loop else "e2e_ms",
        },
        **{name: getattr(m, name) for name in SPREADS},
        "chunk_sizes": m.chunk_sizes,
        **_acceptance(m.acceptance),
        "categories": [_category(c) for c in m.categories],
        "goodput": good,
        "goodput_req_s": good.req_s if good is not None else None,
        "client": m.client,
        "assumptions": m.assumptions,
        "notes": m.notes,
        "disturbed": m.disturbed,
    }


def _acceptance(found: Acceptance | None) -> Document:
    return {
        "accept_len": found.accept_len if found else None,
        "tokens_per_step": found.tokens_per_step if found else None,
        "acceptance": found,
    }


def _category(c: Category) -> Document:
    return {
        "name": c.name,
        "requests": c.requests,
        "output_tokens": c.output_tokens,
        "ttft_ms": c.ttft_ms,
        "tpot_ms": c.tpot_ms,
        **_acceptance(c.acceptance),
    }


# --- several runs -----------------------------------------------------------------------------------------


def _mean(each: Sequence[Document]) -> Document:
    """Repetitions as one: figures are means over the runs, counts are sums, words are gathered."""
    first = each[0]
    errors: dict[str, int] = {}
    unsent: dict[str, int] = {}
    for one in each:
        for sums, found in ((errors, one["errors"]), (unsent, one["unsent"])):
            for kind, count in found.items():
                sums[kind] = sums.get(kind, 0) + count
    prompts = [one["prompt_tokens"] for one in each]
    return {
        **{key: first[key] for key in ("workload", "concurrency", "loop", "arrival", "prompts_sha256", "headline")},
        **{key: sum(one[key] for one in each) for key in _SUMS},
        "prompt_tokens": sum(prompts) if None not in prompts else None,
        "errors": dict(sorted(errors.items())),
        "unsent": unsent,
        "stopped_because": next((one["stopped_because"] for one in each if one["stopped_because"]), None),
        "window": None,
        **{key: _mean_of([one[key] for one in each]) for key in _MEANS},
        **{key: _mean_spread([one[key] for one in each]) for key in SPREADS},
        **{key: _gathered(one[key] for one in each) for key in ("assumptions", "notes", "disturbed")},
    }


def _pooled(runs: Sequence[Measured], each: Sequence[Document]) -> Document:
    """What is counted over all requests of all runs; health and counters are of each run."""
    done = [r for run in runs for r in run.records if not r.warmup and r.error is None]
    goods = [one["goodput"] for one in each if one["goodput"] is not None]
    sizes: dict[int, int] = {}
    for one in each:
        for size, chunks in one["chunk_sizes"]:
            sizes[size] = sizes.get(size, 0) + chunks
    return {
        "chunk_sizes": sorted(sizes.items()),
        "categories": [_category(c) for c in categories(done)],
        "goodput": Goodput(
            limits_ms=goods[0].limits_ms,
            requests=sum(good.requests for good in goods),
            good=sum(good.good for good in goods),
            req_s=_mean_of([good.req_s for good in goods]),
        )
        if goods
        else None,
        "acceptance": None,
        "client": None,
    }


def _mean_of(values: Sequence[float | None]) -> float | None:
    seen = [value for value in values if value is not None]
    return math.fsum(seen) / len(seen) if len(seen) == len(values) else None


def _mean_spread(spreads: Sequence[Spread]) -> Spread:
    return Spread(**{f.name: _mean_of([getattr(one, f.name) for one in spreads]) for f in fields(Spread)})


def _gathered(lists: Iterable[Sequence[str]]) -> list[str]:
    """Each sentence once, also where the runs differ in its figures: those are in the runs."""
    found: dict[str, str] = {}
    for text in (text for texts in lists for text in texts):
        found.setdefault(_DIGITS.sub("", text), text)
    return list(found.values())


def disturbed(document: Mapping[str, Any]) -> bool:
    """Whether any of its figures are not to be trusted."""
    return any(level["disturbed"] for level in document["levels"])
