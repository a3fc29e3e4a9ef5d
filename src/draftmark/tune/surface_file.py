"""Recorded figures as a file: depth to what is known of it. Takes what it can, says what it assumed. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from draftmark.errors import BadInputError
from draftmark.tune import acceptance_model as acceptance
from draftmark.tune import surface_values as values
from draftmark.tune.acceptance_model import AcceptanceEvidence

_SLOWEST, _FASTEST = 1e-6, 1e9  # tokens per second
_NOISE, _MARGIN = 0.03, 0.02
_ROUNDED = 0.05  # an accept length that somebody rounded
_NAMED = 5  # slips that are told one by one
_ROUNDS = 500  # taken for counted where a histogram holds shares
_LISTS = ("depths", "arms", "surface", "entries", "points", "results")
_TOK_S = ("tok_s", "output_tok_s", "tok/s", "tokens_per_s", "tokens_per_second", "toks")
_HISTOGRAMS = ("histogram", "accepted_histogram", "accept_histogram", "spec_accept_histogram")
_POSITIONS = ("accepted_per_pos", "num_accepted_tokens_per_pos", "accepted_per_position")
_RUNNING = ("max_running_requests", "running", "max_running")
_FORM = (
    'such as {"0": {"tok_s": {"1": 123.0}}, "4": {"tok_s": {"1": 277.0}}, "10": {"fits": false}}: docs/search.md'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is recorded of a depth.

    Attributes:
        refused: Why it cannot be measured; None when it can.
        tok_s: By concurrency.
        running: max_running_requests.
    """

    depth: int
    refused: str | None = None
    tok_s: Mapping[int, float] = field(default_factory=dict)
    acceptance: AcceptanceEvidence | None = None
    running: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """A file, understood.

    Attributes:
        entries: By depth, in rising order; at least the baseline has figures.
        latency: The concurrency that stands for latency; None where it is not asked for.
        throughput: The one that stands for throughput.
        minutes: Of downtime that a restart costs; None where nobody told.
        trees: Drafts branch.
        experts: Of a mixture: how many a layer has, and how many of them a token chooses.
        assumed: What the file left open, in words.
    """

    entries: Mapping[int, Entry]
    baseline: int
    latency: int | None
    throughput: int | None
    noise: float = _NOISE
    margin: float = _MARGIN
    minutes: float | None = None
    trees: bool = False
    experts: tuple[int, int] | None = None
    assumed: tuple[str, ...] = ()


def read(text: str | bytes, name: str) -> Surface:
    """A surface file.

    Args:
        text: JSON.
        name: Of the file, for errors.

    Raises:
        BadInputError: It is no JSON, holds no depth, or no depth has figures.
    """
    try:
        data = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        _bad(name, f"is no JSON: {error}"[:200])
    return _Reading(name, data).surface()


def _bad(name: str, what: str) -> NoReturn:
    raise BadInputError(f"{name} {what}", next_step=f"a surface maps depths to figures, {_FORM}")


class _Reading:
    """One file on its way to a `Surface`; collects what is assumed."""

    def __init__(self, name: str, data: Any) -> None:
        self.name = name
        self.assumed: list[str] = []
        self.top: dict[str, Any] = data if isinstance(data, dict) else {}
        self.trees = (
            values.number(values.first(self.top, ("topk", "eagle_topk", "speculative_eagle_topk"))) or 1
        ) > 1
        told = values.first(self.top, ("concurrency", "concurrencies"))
        self.levels = values.levels(told)
        if told is not None and not self.levels:
            self._unused("concurrency", told)
        self.raw = self._raw(data)

    def surface(self) -> Surface:
        entries = {depth: self._entry(depth, value) for depth, value in sorted(self.raw.items())}
        if not any(entry.tok_s for entry in entries.values()):
            _bad(self.name, "holds no figure of any depth: nothing to search in")
        baseline = self._baseline(entries)
        latency, throughput = self._objective(entries[baseline])
        deciding = {c for c in (latency, throughput) if c is not None}
        entries = {depth: self._usable(entry, deciding) for depth, entry in entries.items()}
        return Surface(
            entries=entries,
            baseline=baseline,
            latency=latency,
            throughput=throughput,
            noise=self._noise(),
            margin=self._margin(),
            minutes=self._minutes(),
            trees=self.trees,
            experts=self._experts(),
            assumed=tuple(dict.fromkeys(self.assumed)),
        )

    def _unused(self, key: str, told: Any) -> None:
        self.assumed.append(f"{key} {str(told)[:40]!r} is not understood, and left out")

    # --- depths -------------------------------------------------------------------------------------------

    def _raw(self, data: Any) -> dict[int, Any]:
        held = [data] if isinstance(data, list) else [self.top.get(key) for key in _LISTS]
        for value in (*held, self.top):
            found = self._keyed(value)
            if found:
                return found
        _bad(self.name, "names no depth")

    def _keyed(self, value: Any) -> dict[int, Any]:
        """Depth to entry: of an object by its keys, of a list by what each entry says of itself."""
        if isinstance(value, dict):
            pairs: Iterable[tuple[Any, Any]] = value.items()
        elif isinstance(value, list):
            pairs = [(values.first(v, ("depth", "arm", "num_steps")), v) for v in value if isinstance(v, dict)]
        else:
            return {}
        found: dict[int, Any] = {}
        foreign: list[str] = []
        for key, entry in pairs:
            depth = values.depth(key)
            if depth is None:
                foreign.append(str(key)[:40])
                continue
            if depth > values.DEEPEST:
                _bad(self.name, f"names depth {depth}; more than {values.DEEPEST} is a slip")
            if depth in found:
                _bad(self.name, f"names depth {depth} twice")
            found[depth] = entry
        if found and value is not self.top:  # at the top other keys stand beside the depths
            self.assumed += [f"{name!r} is no depth, and left out" for name in foreign[:_NAMED]]
        return found

    def _entry(self, depth: int, value: Any) -> Entry:
        if value is None or value is False:
            return Entry(depth=depth, refused="does not fit")
        if isinstance(value, str):
            return Entry(depth=depth, refused=value[:200] or "does not fit")
        if not isinstance(value, dict):
            value = {"tok_s": value}
        fits = self._fits(value)
        tok_s = self._figures(depth, value)
        if fits is None and not tok_s:
            self.assumed.append(
                f"depth {depth} has no figures and does not say whether it fits: it is never started"
            )
            return Entry(depth=depth, refused="nothing is recorded")
        if not fits and fits is not None:
            because = values.first(value, ("because", "reason", "why", "error"))
            return Entry(depth=depth, refused=because[:200] if isinstance(because, str) else "does not fit")
        return Entry(
            depth=depth,
            tok_s=tok_s,
            acceptance=self._acceptance(depth, value),
            running=self._running(depth, value),
        )

    def _fits(self, value: dict[str, Any]) -> bool | None:
        """As the entry says; None where it says nothing."""
        for holder in (value, value.get("fit")):
            said = holder.get("fits") if isinstance(holder, dict) else holder
            if isinstance(said, bool):
                return said
            if isinstance(said, str) and said.strip().lower() in ("no", "false", "yes", "true"):
                return said.strip().lower() in ("yes", "true")
        return False if value.get("status") in ("refused", "did-not-start") else None

    def _figures(self, depth: int, value: dict[str, Any]) -> dict[int, float]:
        told = values.first(value, _TOK_S)
        if told is None and self.levels:  # as a result document has them
            ends = {"latency": self.levels[0], "throughput": self.levels[-1]}
            told = {str(c): value[key].get("tok_s") for key, c in ends.items() if isinstance(value.get(key), dict)}
        if isinstance(told, list):
            if len(told) != len(self.levels):
                self.assumed.append(
                    f"depth {depth} has {len(told)} figures for {len(self.levels)} concurrencies: the first count"
                )
            told = {str(c): figure for c, figure in zip(self.levels, told, strict=False)}
        if not isinstance(told, dict):
            figure = values.number(told)
            told = {} if figure is None else {str(self._single()): figure}
        found: dict[int, float] = {}
        for key, figure in told.items():
            level, number = values.level(key), values.number(figure)
            if level is None or number is None or not _SLOWEST < number < _FASTEST:
                self.assumed.append(
                    f"depth {depth}: the figure at concurrency {str(key)[:40]} is none, and left out"
                )
            else:
                found[level] = number
        return dict(sorted(found.items()))

    def _single(self) -> int:
        """The concurrency of a figure that does not say its own."""
        if len(self.levels) == 1:
            return self.levels[0]
        level = self.levels[0] if self.levels else 1
        self.assumed.append(f"figures without a concurrency are taken to be of concurrency {level}")
        return level

    def _running(self, depth: int, value: dict[str, Any]) -> int | None:
        for holder in (value, value.get("limits"), value.get("fit"), self.top):
            told = values.first(holder, _RUNNING) if isinstance(holder, dict) else None
            if isinstance(told, dict):
                told = next((v for key, v in told.items() if values.depth(key) == depth), None)
            number = values.number(told)
            if number is not None and number >= 1:
                return int(min(number, values.LARGEST))
            if told is not None:
                self._unused(f"depth {depth}: max_running_requests", told)
        return None

    # --- acceptance ---------------------------------------------------------------------------------------

    def _acceptance(self, depth: int, value: dict[str, Any]) -> AcceptanceEvidence | None:
        """The firmest that the entry has; None for depth 0 and where it has none."""
        if depth == 0:
            return None
        counts = self._histogram(depth, values.first(value, _HISTOGRAMS))
        if counts:
            return acceptance.from_histogram(depth, counts, tree=self.trees)
        positions, drafts = (
            values.numbers(values.first(value, _POSITIONS)),
            values.number(values.first(value, ("drafts", "num_drafts"))),
        )
        if positions and drafts:
            return acceptance.from_positions(depth, drafts, positions)
        for key in ("tokens_per_step", "accept_len", "accept_length", "acceptance_length"):
            told = value.get(key)
            each = [values.number(v) for v in (told.values() if isinstance(told, dict) else [told])]
            known = [v for v in each if v is not None and v >= 1.0]
            length = math.fsum(known) / len(known) if known else 0.0
            if length > depth + 1.0 + _ROUNDED:
                self.assumed.append(
                    f"depth {depth}: an accept length of {length:g} is more than its drafts allow, and left out"
                )
            elif known:
                return acceptance.from_length(depth, length, tree=self.trees)
        drafted, accepted = values.number(value.get("drafted_tokens")), values.number(value.get("accepted_tokens"))
        if drafted and accepted is not None:
            return acceptance.from_totals(depth, drafted, accepted)
        return None

    def _histogram(self, depth: int, told: Any) -> list[float]:
        """Rounds by drafts accepted; empty where there are none to be had."""
        counts = values.counts(told)
        if not counts:
            if told:
                self.assumed.append(f"depth {depth}: its histogram is not understood, and left out")
            return []
        if len(counts) == depth + 2 and counts[0] == 0.0:
            self.assumed.append(f"depth {depth}: its histogram is taken to count accept lengths from 1 on")
            counts = counts[1:]
        if not any(counts) or any(counts[depth + 1 :]):
            self.assumed.append(f"depth {depth}: its histogram is not one of its {depth} drafts, and left out")
            return []
        if math.fsum(counts) <= 1.5:
            self.assumed.append(f"histograms that hold shares are taken to be of {_ROUNDS} rounds")
            counts = [count * _ROUNDS for count in counts]
        return counts

    # --- what is asked ------------------------------------------------------------------------------------

    def _baseline(self, entries: dict[int, Entry]) -> int:
        told = self.top.get("baseline")
        if isinstance(told, dict):
            told = values.first(told, ("depth", "arm"))
        wanted = values.depth(told)
        able = [depth for depth, entry in entries.items() if entry.tok_s]
        if wanted in able:
            return wanted
        if told is not None:
            self.assumed.append(f"the baseline {str(told)[:40]!r} is no depth with figures, and not used")
        self.assumed.append(f"the baseline, which runs today, is {'off' if not able[0] else f'depth {able[0]}'}")
        return able[0]

    def _objective(self, baseline: Entry) -> tuple[int | None, int | None]:
        """The concurrencies for latency and throughput: one of them or both, never the same twice."""
        have = [c for c in self.levels if c in baseline.tok_s] or list(baseline.tok_s)
        low, high = min(have), max(have)
        told = self.top.get("objective")
        if isinstance(told, dict):
            ends = [values.level(told.get(key)) for key in ("latency", "throughput")]
            picked = [c for c in ends if c is not None and c in baseline.tok_s]
            low, high = (min(picked), max(picked)) if picked else (low, high)
        elif isinstance(told, str) and told.strip().lower().startswith("lat"):
            return low, None
        elif isinstance(told, str) and told.strip().lower().startswith("through"):
            return None, high
        elif (level := values.level(told)) is not None and level in baseline.tok_s:
            low = high = level
        elif told is not None and told not in ("both", "recommended"):
            self.assumed.append(
                f"objective {str(told)[:40]!r} is not known; latency and throughput are searched for"
            )
        if low == high:
            return (low, None) if low == 1 else (None, high)
        if told is None:
            self.assumed.append(
                f"latency at concurrency {low} is searched for, as long as throughput at {high} does not lose by it"
            )
        return low, high

    def _usable(self, entry: Entry, deciding: set[int]) -> Entry:
        """Without a figure at a concurrency that decides it cannot be measured."""
        missing = sorted(deciding - set(entry.tok_s))
        if entry.refused is not None or not missing:
            return entry
        self.assumed.append(f"depth {entry.depth} has no figure at concurrency {missing[0]}: it is never started")
        return Entry(depth=entry.depth, refused=f"nothing is recorded at concurrency {missing[0]}")

    def _noise(self) -> float:
        told = self.top.get("noise", self.top.get("noise_sd"))
        each = [values.number(v) for v in (told.values() if isinstance(told, dict) else [told])]
        noise = max((v for v in each if v is not None), default=None)
        if noise is not None and 0.5 < noise <= 50.0:
            self.assumed.append(f"noise {noise:g} is taken for percent")
            noise /= 100.0
        elif told is not None and (noise is None or not 0.0 <= noise <= 0.5):
            self._unused("noise", told)
        if noise is None or not 0.0 <= noise <= 0.5:
            self.assumed.append(f"a figure's noise is taken to be {_NOISE:.0%}")
            return _NOISE
        return noise

    def _margin(self) -> float:
        told = values.first(self.top, ("tie_margin", "margin"))
        margin = values.number(told)
        if margin is not None and 0.0 <= margin < 1.0:
            return margin
        if told is not None:
            self._unused("tie_margin", told)
        return _MARGIN

    def _experts(self) -> tuple[int, int] | None:
        """Of a mixture: how many there are in a layer, and how many a token chooses."""
        told = self.top.get("experts")
        pair = [told.get("total"), told.get("active")] if isinstance(told, dict) else told
        numbers = values.numbers(pair)
        if len(numbers) != 2 or not 1 <= numbers[1] <= numbers[0] <= values.LARGEST:
            if told is not None:
                self._unused("experts", told)
            return None
        return int(numbers[0]), int(numbers[1])

    def _minutes(self) -> float | None:
        minutes = values.number(values.first(self.top, ("minutes", "restart_minutes", "minutes_per_restart")))
        seconds = values.number(values.first(self.top, ("restart_s", "start_s", "seconds")))
        told = minutes if minutes is not None else None if seconds is None else seconds / 60.0
        if told is not None and told <= 0.0:
            self.assumed.append("a restart takes no time by this file: left out")
        return told if told is not None and told > 0 else None
