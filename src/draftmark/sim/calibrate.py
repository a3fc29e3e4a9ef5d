"""Fits a simulated server to what was measured: a run directory, or a known case (`cases.toml`).

Durations: the parameters of `cost.RoundCost` by least squares of relative errors, each held to its default by a
weak pull, so that two measured depths are enough and none of them runs away; what is left over at a depth becomes
that depth's factor. Acceptance: from the histograms of the deepest depth of each kind of text, which hold every
shallower one. Concurrencies and depths that were not measured follow from the fitted parameters: the "what if".
"""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from draftmark.errors import BadInputError
from draftmark.model import RequestRecord
from draftmark.sim.acceptance import Acceptance, survival
from draftmark.sim.cost import RoundCost
from draftmark.sim.text import chat_text

_PULL = 0.02  # weight of a parameter's default beside one measured point
_FITTED = ("base", "experts", "token", "draft", "draft_request")
_ROUNDS = 4  # of one request: fewer tell no duration
_TRIAL = re.compile(r"\d+-(?:d(\d+)|off)")


@dataclass(frozen=True, slots=True)
class Point:
    """How long a round took: `requests` in the batch, `depth` drafts, `cached` tokens in all their caches."""

    requests: int
    depth: int
    cached: float
    seconds: float


def calibrated(name: str, cost: RoundCost, acceptance: Acceptance) -> tuple[RoundCost, Acceptance]:
    """Cost and acceptance, fitted to a run directory or a case.

    Raises:
        BadInputError: It is neither, or nothing in it was measured.
    """
    if name in cases():
        return _case(cases()[name], cost, acceptance)
    path = Path(name).expanduser()
    if not (path / "run.json").is_file():
        raise BadInputError(
            f"--calibrate {name[:80]}: neither a run directory nor a known case",
            next_step=f"name the directory of a run of draftmark tune, or one of {', '.join(cases())}",
        )
    records = list(_records(path))
    points = list(points_of(records))
    if not points:
        raise BadInputError(
            f"no answer in {path} tells how long its rounds took",
            next_step="a run of an SGLang server asked over its own API (--api sglang) does",
        )
    return fitted(cost, points), _learned(path, records, acceptance)


@cache
def cases() -> Mapping[str, Any]:
    """Known cases."""
    return tomllib.loads(files(__package__).joinpath("cases.toml").read_text(encoding="utf-8"))


def _case(case: Mapping[str, Any], cost: RoundCost, acceptance: Acceptance) -> tuple[RoundCost, Acceptance]:
    chances = case["chances"]
    factors = {}
    for word, speed in case["tok_s"].items():
        depth = int(word)
        length = 1.0 + sum(survival(chances, depth))
        factors[depth + 1] = length / speed / cost.round_s(1, depth, depth + 1, 0)
    learned = replace(acceptance, chances=dict.fromkeys(acceptance.chances, chances), varies=0.0, even=True)
    return replace(cost, by_tokens=factors), learned


# --- a run directory ----------------------------------------------------------------------------------------------


def _records(path: Path) -> Iterable[tuple[int, RequestRecord]]:
    """(depth, answer) of every request that was measured; lines that cannot be read are left out."""
    decode = msgspec.json.Decoder(RequestRecord).decode
    for trial in sorted((path / "trials").glob("*")):
        found = _TRIAL.fullmatch(trial.name)
        try:
            lines = (trial / "requests.jsonl").read_bytes().splitlines() if found else []
        except OSError:
            continue
        for line in lines:
            try:
                record = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if found is not None and not record.warmup and record.error is None:
                yield int(found[1] or 0), record


def points_of(records: Iterable[tuple[int, RequestRecord]]) -> Iterable[Point]:
    """The median duration of a round at each depth and concurrency."""
    seen: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for depth, record in records:
        rounds = _rounds(depth, record)
        first, last = record.first_token_at_s, record.last_token_at_s
        if rounds < _ROUNDS or first is None or last is None or last <= first:
            continue
        held = (record.prompt_tokens or 0) + (record.output_tokens or 0) / 2
        seen[depth, record.concurrency].append(((last - first) / rounds, held))
    for (depth, concurrency), found in sorted(seen.items()):
        seconds = statistics.median(each for each, _ in found)
        held = statistics.fmean(each for _, each in found)
        yield Point(max(1, concurrency), depth, held * max(1, concurrency), seconds)


def _rounds(depth: int, record: RequestRecord) -> int:
    if depth == 0:
        return (record.output_tokens or 1) - 1
    return sum(record.accepted_histogram or ())


def fitted(cost: RoundCost, points: Sequence[Point]) -> RoundCost:
    """The parameters that meet the points best, and a factor for what is left at each depth."""
    free = list(_FITTED)
    while True:
        theta = _solved(cost, points, free)
        below = [name for name, value in theta.items() if value < 0]
        if not below:
            break
        free = [name for name in free if name not in below]
        cost = _with(cost, dict.fromkeys(below, 0.0))
    plain = _with(cost, theta)
    left: dict[int, list[float]] = defaultdict(list)
    for point in points:
        told = plain.round_s(point.requests, point.depth, point.depth + 1, round(point.cached))
        left[point.depth + 1].append(point.seconds / told)
    return replace(plain, by_tokens={tokens: _mean(each) for tokens, each in left.items()})


def _with(cost: RoundCost, theta: Mapping[str, float]) -> RoundCost:
    known = {name: theta.get(name, getattr(cost, name)) for name in _FITTED}
    return replace(
        cost,
        base=known["base"],
        experts=known["experts"],
        token=known["token"],
        draft=known["draft"],
        draft_request=known["draft_request"],
        by_tokens={},
    )


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(each) for each in ratios))


def _solved(cost: RoundCost, points: Sequence[Point], free: Sequence[str]) -> dict[str, float]:
    """Least squares in units of the defaults: rows are points in units of their durations, then the pulls."""
    scale = {name: getattr(cost, name) or 1e-6 for name in free}
    rows: list[tuple[list[float], float]] = []
    for point in points:
        features = _features(cost, point)
        rest = sum(features[name] * getattr(cost, name) for name in _FITTED if name not in free)
        rest += cost.cached * point.cached
        row = [features[name] * scale[name] / point.seconds for name in free]
        rows.append((row, 1.0 - rest / point.seconds))
    rows += [([_PULL * (place == other) for other in range(len(free))], _PULL) for place in range(len(free))]
    found = _least_squares(rows, len(free))
    return {name: value * scale[name] for name, value in zip(free, found, strict=True)}


def _features(cost: RoundCost, point: Point) -> dict[str, float]:
    tokens = point.requests * (point.depth + 1)
    return {
        "base": 1.0,
        "experts": cost.touched(tokens),
        "token": float(tokens),
        "draft": float(point.depth),
        "draft_request": float(point.depth * point.requests),
    }


def _least_squares(rows: Sequence[tuple[Sequence[float], float]], size: int) -> list[float]:
    """The normal equations, by elimination; the pulls keep them from being singular."""
    table = [
        [sum(row[i] * row[j] for row, _ in rows) for j in range(size)] + [sum(row[i] * told for row, told in rows)]
        for i in range(size)
    ]
    for i in range(size):
        best = max(range(i, size), key=lambda place: abs(table[place][i]))
        table[i], table[best] = table[best], table[i]
        for place in range(size):
            if place != i:
                factor = table[place][i] / table[i][i]
                table[place] = [a - factor * b for a, b in zip(table[place], table[i], strict=True)]
    return [table[i][size] / table[i][i] for i in range(size)]


# --- acceptance ---------------------------------------------------------------------------------------------------


def _learned(path: Path, records: Sequence[tuple[int, RequestRecord]], before: Acceptance) -> Acceptance:
    """Chances by kind, a kind being a prompt's category, else its workload; the old ones for what has none."""
    deepest: dict[str, tuple[int, list[int]]] = {}
    for depth, record in records:
        kind, counts = record.category or record.workload, record.accepted_histogram
        if not depth or not counts:
            continue
        known, total = deepest.get(kind, (0, []))
        if depth > known:
            deepest[kind] = (depth, list(counts))
        elif depth == known:
            deepest[kind] = (depth, [a + b for a, b in zip(total, counts, strict=False)])
    chances = {kind: found for kind, (_, counts) in deepest.items() if (found := chances_of(counts))}
    if not chances:
        return before
    return replace(before, chances={**before.chances, **chances}, prompts=_prompts(path, chances), varies=0.0)


def chances_of(histogram: Sequence[int]) -> tuple[float, ...]:
    """From rounds by accepted drafts to the chance of each draft, given those before it."""
    found = []
    for place in range(len(histogram) - 1):
        reached, taken = sum(histogram[place:]), sum(histogram[place + 1 :])
        if not reached:
            break
        found.append(taken / reached)
    return tuple(found)


def _prompts(path: Path, chances: Mapping[str, object]) -> dict[str, str]:
    """Text as the server sees it → kind, for every prompt of the run."""
    try:
        document = msgspec.json.decode((path / "run.json").read_bytes())
        workloads = document["workloads"]
        found: dict[str, str] = {}
        for workload in workloads:
            for prompt in workload["prompts"]:
                kind = prompt.get("category") or workload["name"]
                if kind in chances:
                    messages = prompt["messages"]
                    found[chat_text(messages)] = kind
                    found["\n".join(message["content"] for message in messages)] = kind
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(
            f"{path / 'run.json'} cannot be understood", evidence=(f"{type(error).__name__}: {error}"[:200],)
        ) from None
    return found
