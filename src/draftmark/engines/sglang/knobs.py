"""The flags that `--knob` may vary, by version. Pure; which they are is in knobs.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence, Set
from functools import cache
from importlib.resources import files
from typing import Any

from draftmark.engines.sglang import arms
from draftmark.engines.sglang.flags import meant, options, parse
from draftmark.engines.sglang.versions import Rules, facts
from draftmark.model import KnobKind, KnobSpec


@cache
def table() -> dict[str, dict[str, Any]]:
    """knobs.toml, read once."""
    return tomllib.loads(files(__package__).joinpath("knobs.toml").read_text(encoding="utf-8"))


def knobs_of(command: Sequence[str], rules: Rules) -> tuple[KnobSpec, ...]:
    """What this version has, with what the command line sets of it.

    Trees are for what drafts token by token, with fixed steps.
    """
    parsed = parse(command, rules)
    method = arms.method_of(parsed)
    family = facts()["methods"].get(method or "", {}).get("family", "chain")
    found = []
    for name, entry in table().items():
        flag = _flag(entry["flags"], rules, {each.name for each in parsed.given})
        shape = bool(entry.get("drafts"))
        if flag is None or (shape and (family != "chain" or arms.adaptive(parsed))):
            continue
        found.append(
            KnobSpec(
                name=name,
                flag=flag,
                kind=KnobKind(entry["kind"]),
                step=entry.get("step"),
                least=entry.get("least", 0),
                runs=_shape_value(command, flag, rules) if shape and method else parsed.value(flag),
                drafts=shape,
                source=entry["source"],
            )
        )
    return tuple(found)


def _flag(names: Sequence[str], rules: Rules, given: Set[str]) -> str | None:
    """The canonical option of the one that the command line has, else of the first that the version has.

    One that the version warns of comes last: both spellings at once would contradict each other.
    """
    there = [name for name in names if any(each.spelled == name for each in meant(name, rules))]
    fresh = [name for name in there if (options()[name].deprecated or rules.minor + 1) > rules.minor]
    used = [name for name in there if options()[name].name in given]
    return next((options()[name].name for name in (*used, *fresh, *there)), None)


def _shape_value(command: Sequence[str], flag: str, rules: Rules) -> str:
    """Steps, topk and draft tokens in force, which the server may have chosen."""
    shape = arms.shape_of(parse(command, rules), rules)
    return str(shape.topk if flag == arms.TOPK else shape.tokens)
