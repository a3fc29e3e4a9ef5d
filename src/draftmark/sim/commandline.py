"""The command line that SGLang would have in the place of a simulated server. Pure."""

from __future__ import annotations

from draftmark.engines.sglang.flags import parse
from draftmark.engines.sglang.versions import rules_for
from draftmark.sim.presets import Cards, Model
from draftmark.sim.words import Words

SERVES = ("sglang", "serve")
"""What a command line of SGLang begins with, as far as this room is concerned."""


def command_of(words: Words, model: Model, cards: Cards) -> tuple[str, ...]:
    """SGLang's command line: its flags, the model, and all cards unless they say otherwise."""
    command = (*SERVES, *words.flags)
    parsed = parse(command, rules_for(words.version))
    if parsed.value("--model-path") is None:
        command += ("--model-path", model.path)
    if parsed.value("--tp-size") is None and cards.count > 1:
        command += ("--tp-size", str(cards.count))
    return command
