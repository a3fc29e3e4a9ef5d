"""The flags of llama-server that `--knob` may vary. Pure; which they are is in knobs.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from draftmark.engines.flags import Flag, FlagGroup, value_of
from draftmark.model import Arm, KnobKind, KnobSpec


@cache
def table() -> dict[str, dict[str, Any]]:
    """knobs.toml, read once."""
    return tomllib.loads(files(__package__).joinpath("knobs.toml").read_text(encoding="utf-8"))


def knobs_of(command: Sequence[str]) -> tuple[KnobSpec, ...]:
    """All of them, with what the command line sets."""
    return tuple(
        KnobSpec(
            name=name,
            flag=entry["names"][0],
            kind=KnobKind(entry["kind"]),
            step=entry.get("step"),
            least=entry.get("least", 0),
            values=tuple(entry.get("values", ())),
            runs=value_of(command, entry["names"]),
            source=entry["source"],
        )
        for name, entry in table().items()
    )


def with_knobs(command: Sequence[str], arm: Arm) -> tuple[str, ...]:
    """The command line with an arm's knobs in the place of what it says of them; the others stay as they are."""
    wanted = dict(arm.knobs)
    moved = [tuple(entry["names"]) for entry in table().values() if entry["names"][0] in wanted]
    rest, _ = FlagGroup(Flag(names) for names in moved).split(command)
    return (*rest, *(word for knob in arm.knobs for word in knob if word))
