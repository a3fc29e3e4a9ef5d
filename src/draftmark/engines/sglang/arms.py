"""What an arm means in SGLang's command line, and which arm a command line is. Pure but for a model's config.

A depth is `speculative_num_steps` for what drafts token by token (EAGLE, EAGLE3, NEXTN, STANDALONE), and the size
of the block for what drafts at once (NGRAM, DFLASH, DSPARK). Draft tokens follow from the steps: steps + 1 without
a tree, to which the server would force them; a user's tree keeps its width and its tokens per step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from draftmark.engines.sglang.flags import Given, Parsed, meant, parse, without
from draftmark.engines.sglang.versions import Rules, facts
from draftmark.errors import UsageError
from draftmark.model import Arm

ALGORITHM = "--speculative-algorithm"
STEPS = "--speculative-num-steps"
TOPK = "--speculative-eagle-topk"
TOKENS = "--speculative-num-draft-tokens"
ADAPTIVE = "--speculative-adaptive"
ADAPTIVE_CONFIG = "--speculative-adaptive-config"

_SHAPE = (
    STEPS,
    TOPK,
    TOKENS,
    "--speculative-dflash-block-size",
    "--speculative-dspark-block-size",
    ADAPTIVE,
    ADAPTIVE_CONFIG,
)
_BLOCK_SHAPE = tuple(name for name in _SHAPE if name not in (STEPS, TOPK))  # of no effect on a block: left alone
_CONFIG_BYTES = 4 << 20
_TREE_TOKENS = 16  # verified, of a tree that is only asked for by its branches


@dataclass(frozen=True, slots=True)
class Shape:
    """A chain or tree of drafts: steps, how many it branches at each, and how many tokens are verified in all."""

    steps: int
    topk: int
    tokens: int

    def at(self, steps: int) -> Shape:
        """The same kind of shape, so many steps deep."""
        if steps == self.steps:
            return self
        if self.topk == 1:
            return Shape(steps, 1, steps + 1)
        per_step = (self.tokens - 1) / max(self.steps, 1)
        most = steps * self.topk + 1
        return Shape(steps, self.topk, min(most, max(steps + 1, round(per_step * steps) + 1)))


def method_of(parsed: Parsed) -> str | None:
    """The algorithm that the command line asks for, in capitals as the server reads it; None when it is off."""
    given = parsed.value(ALGORITHM)
    return None if given is None or given.upper() in ("", "NONE") else given.upper()


def known_method(name: str, rules: Rules) -> dict[str, object]:
    """What is known of an algorithm.

    Raises:
        UsageError: Nothing, or this version does not have it.
    """
    known = facts()["methods"]
    if name.upper() not in known:
        raise UsageError(
            f'the speculative algorithm "{name}" has no depth that a flag sets',
            evidence=(f"{ALGORITHM} {name}",),
            next_step=f"use one of: {', '.join(each for each in known if _since(known[each]) <= rules.minor)}",
        )
    method: dict[str, object] = known[name.upper()]
    since = method.get("since")
    if isinstance(since, int) and rules.minor < since and (rules.neighbour or 0) < since:
        raise UsageError(
            f"SGLang {rules.version} does not have the speculative algorithm {name.upper()}",
            evidence=(f"{ALGORITHM} {name}", f"it came with 0.5.{since}"),
            next_step="name an algorithm that this version has",
        )
    return method


def _since(method: dict[str, object]) -> int:
    since = method.get("since")
    return since if isinstance(since, int) else 0


def number(parsed: Parsed, name: str) -> int | None:
    """The whole number given to a flag; None where it is not given.

    Raises:
        UsageError: It is no such number.
    """
    text = parsed.value(name)
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,6}", text) is None:
        raise UsageError(
            f"{name} takes a whole number", evidence=(f"{name} {text[:60]}",), next_step=f"write {name} 3"
        )
    return int(text)


def adaptive(parsed: Parsed) -> bool:
    """Whether the steps follow the acceptance while the server runs."""
    return parsed.has(ADAPTIVE)


def depth_of(command: Sequence[str], rules: Rules) -> int:
    """Depth in force when it starts; 0 when speculation is off."""
    parsed = parse(command, rules)
    method = method_of(parsed)
    if method is None:
        return 0
    known = known_method(method, rules)
    return shape_of(parsed, rules).steps if known["family"] == "chain" else _block(parsed, known, method)


def _block(parsed: Parsed, known: dict[str, object], method: str) -> int:
    for name in (str(known["depth"]), str(known.get("also", ""))):
        size = number(parsed, name) if name else None
        if size is not None:
            return size
    default = known.get("default")
    if isinstance(default, int):
        return default
    raise UsageError(
        f"{method} without {known['depth']} takes its depth from the draft model",
        evidence=(f"{ALGORITHM} {method}",),
        next_step=f"write {known['depth']} with the size in force",
    )


def shape_of(parsed: Parsed, rules: Rules) -> Shape:
    """The shape in force of a method that drafts step by step."""
    steps, topk, tokens = (number(parsed, name) for name in (STEPS, TOPK, TOKENS))
    if adaptive(parsed):
        steps = adaptive_start(parsed, rules) if steps is None else steps
        return Shape(steps, topk or 1, steps + 1)
    if steps is None:
        return Shape(*_auto(parsed))
    if (topk or 1) == 1:
        return Shape(steps, 1, steps + 1)  # whatever was asked for, the server makes it so
    return Shape(steps, topk or 1, tokens or steps + 1)


def chosen_by_server(parsed: Parsed) -> bool:
    """Whether the shape is left to the server, which looks at the model's architecture."""
    return not adaptive(parsed) and all(parsed.value(name) is None for name in (STEPS, TOPK, TOKENS))


def _auto(parsed: Parsed) -> tuple[int, int, int]:
    known = facts()["auto"]
    name = "standalone" if method_of(parsed) == "STANDALONE" else "default"
    if name == "default" and architecture(parsed) in known["tree_architectures"]:
        name = "trees"
    steps, topk, tokens = known[name]
    return steps, topk, tokens


class _Config(msgspec.Struct):
    architectures: list[str] | None = None


def architecture(parsed: Parsed) -> str | None:
    """The model's first architecture by its config.json; None where it is not on this computer or says none."""
    path = parsed.value("--model-path")
    data = _read(f"{path}/config.json") if path else None
    try:
        config = msgspec.json.decode(data, type=_Config) if data else _Config()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return next(iter(config.architectures or ()), None)


# --- adaptive --------------------------------------------------------------------------------------------------


def adaptive_candidates(parsed: Parsed, rules: Rules) -> tuple[int, ...] | None:
    """Every step count that the server may switch to; None where the config file cannot be read from here."""
    path = parsed.value(ADAPTIVE_CONFIG)
    return usual_candidates(rules) if path is None else candidates_in(_read(path))


def usual_candidates(rules: Rules) -> tuple[int, ...]:
    """Without a configuration file."""
    known = facts()["adaptive"]
    if rules.minor < known["slots_since"]:
        return tuple(step for step in known["candidates"] if step)
    return tuple(known["candidates_23"] if rules.minor >= 23 else known["candidates"])


def candidates_in(data: bytes | None) -> tuple[int, ...] | None:
    """Every step count in a configuration file; None where it cannot be read."""
    try:
        document = msgspec.json.decode(data) if data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    found = {step for steps in _candidate_lists(document) for step in steps if isinstance(step, int)}
    return tuple(sorted(found)) or None


def _candidate_lists(document: object) -> Iterator[list[object]]:
    """In slots by batch size since 0.5.14, at the top before."""
    if not isinstance(document, dict):
        return
    slots = [entry for key, entry in document.items() if str(key).isdigit() and isinstance(entry, dict)]
    for entry in slots or [document]:
        steps = entry.get("candidate_steps")
        if isinstance(steps, list):
            yield steps


def adaptive_start(parsed: Parsed, rules: Rules) -> int:
    """The steps with which it starts where none are given: the middle candidate."""
    candidates = adaptive_candidates(parsed, rules)
    return candidates[len(candidates) // 2] if candidates else int(facts()["adaptive"]["start"])


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path may hold what Path would fold
            return file.read(_CONFIG_BYTES)
    except (OSError, ValueError):
        return None


def arm_of(command: Sequence[str], rules: Rules) -> Arm:
    """The arm that a command line is, adaptive speculation included."""
    parsed = parse(command, rules)
    depth = depth_of(command, rules)
    return _adaptive_at(depth, parsed) if depth and adaptive(parsed) else Arm(depth)


def adaptive_arm(command: Sequence[str], rules: Rules) -> Arm:
    """Adaptive speculation on a command line: as it stands there, else from the middle of its candidates on."""
    present = arm_of(command, rules)
    parsed = parse(command, rules)
    return present if present.knobs else _adaptive_at(max(1, adaptive_start(parsed, rules)), parsed)


def _adaptive_at(depth: int, parsed: Parsed) -> Arm:
    path = parsed.value(ADAPTIVE_CONFIG)
    return Arm(depth, ((ADAPTIVE, ""), *(((ADAPTIVE_CONFIG, path),) if path else ())))


# --- an arm's command line -------------------------------------------------------------------------------------


def with_arm(command: Sequence[str], arm: Arm, rules: Rules, *, bring: str | None = None) -> tuple[str, ...]:
    """The command line with the arm's flags in the place of those it had, and every other word as it was.

    What asks for the arm already is left as it is. `bring` is the method to use when the command line names none.
    A knob of value "" is a flag without one.

    Raises:
        UsageError: The command line has no method, and none is brought.
    """
    parsed = parse(command, rules)
    others = tuple(knob for knob in arm.knobs if knob[0] not in (ADAPTIVE, ADAPTIVE_CONFIG, TOPK, TOKENS))
    shape = Arm(arm.depth, tuple(knob for knob in arm.knobs if knob not in others))
    method = method_of(parsed)
    gone: list[Given] = []
    words: tuple[str, ...] = ()
    if arm.depth == 0:
        gone = [each for each in parsed.given if each.name in facts()["off"]["flags"]]
    elif method is None or shape != arm_of(command, rules):
        name = _brought(bring) if method is None else method
        words = (*(() if method else (ALGORITHM, name)), *_shape_words(parsed, arm, name, rules))
        owned = _SHAPE if known_method(name, rules)["family"] == "chain" else _BLOCK_SHAPE
        gone = [each for each in parsed.given if each.name in owned]
        if method is None:
            gone += [each for each in parsed.given if each.name == ALGORITHM]
    changed = _replaced(command, parsed, gone, words) if gone or words else tuple(command)
    for name, value in others:
        changed = _with_flag(changed, name, value, rules)
    return changed


def _with_flag(command: Sequence[str], name: str, value: str, rules: Rules) -> tuple[str, ...]:
    """One knob where its flag stood; a new one behind the drafting flags."""
    parsed = parse(command, rules)
    if parsed.value(name) == value or (not value and parsed.has(name)):
        return tuple(command)
    known = meant(name, rules)
    canonical = known[0].name if len(known) == 1 else name
    words = (name, value) if value else (name,)
    gone = [each for each in parsed.given if each.name == canonical]
    if gone:
        return _replaced(command, parsed, gone, words)
    drafting = {ALGORITHM, *_SHAPE, *_BLOCK_SHAPE}
    at = max((each.stop for each in parsed.given if each.name in drafting), default=len(command))
    return (*command[:at], *words, *command[at:])


def _replaced(command: Sequence[str], parsed: Parsed, gone: list[Given], words: tuple[str, ...]) -> tuple[str, ...]:
    """The words where the first of those that go stood, else behind the algorithm, else at the end."""
    algorithm = [each.stop for each in parsed.given if each.name == ALGORITHM and each not in gone]
    at = min((each.start for each in gone), default=algorithm[-1] if algorithm else len(command))
    return (*command[:at], *words, *without(command, gone)[at:])


def _shape_words(parsed: Parsed, arm: Arm, method: str, rules: Rules) -> tuple[str, ...]:
    known = known_method(method, rules)
    if known["family"] == "block":
        name = str(known.get("also")) if parsed.value(str(known.get("also"))) else str(known["depth"])
        return name, str(arm.depth)
    wanted = dict(arm.knobs)
    if ADAPTIVE in wanted:
        shape = Shape(arm.depth, 1, arm.depth + 1)
    else:
        shape = shape_of(parsed, rules).at(arm.depth) if method_of(parsed) else Shape(arm.depth, 1, arm.depth + 1)
        shape = _tree(shape, wanted)
    words = (STEPS, str(shape.steps), TOPK, str(shape.topk), TOKENS, str(shape.tokens))
    if ADAPTIVE in wanted:
        path = wanted.get(ADAPTIVE_CONFIG)
        words += (ADAPTIVE, *((ADAPTIVE_CONFIG, path) if path else ()))
    return words


def _tree(shape: Shape, wanted: Mapping[str, str]) -> Shape:
    """With the branches and tokens that an arm names; a tree whose tokens it does not name is whole, up to 16."""
    topk = int(wanted.get(TOPK, shape.topk))
    most = shape.steps * topk + 1
    usual = shape.tokens if topk == shape.topk else shape.steps + 1 if topk == 1 else min(most, _TREE_TOKENS)
    return Shape(shape.steps, topk, int(wanted.get(TOKENS, max(usual, shape.steps + 1))))


def _brought(bring: str | None) -> str:
    known = facts()["methods"]
    if bring is None:
        raise UsageError(
            "the command line names no speculative algorithm, and none can be told from it",
            next_step="name it, as the draft model needs it: --method EAGLE3, NEXTN or STANDALONE; or NGRAM",
        )
    if bring.upper() not in known:
        raise UsageError(
            f'SGLang has no speculative algorithm "{bring}" with a depth',
            next_step=f"use one of: {', '.join(known)}",
        )
    return bring.upper()
