"""The log of a start, without a process."""

from __future__ import annotations

from itertools import chain

from draftmark.sim.boot import READY, http_up, starting
from draftmark.sim.clock import EPOCH
from draftmark.sim.failures import SIGQUIT_AT_START, kill_tree
from draftmark.sim.loading import StartFailedError
from draftmark.sim.log import Log, ranks_of
from draftmark.sim.setup import Setup, setup
from draftmark.sim.words import Words


def booted(**words: object) -> tuple[Setup, list[str]]:
    """A server put together, and the lines of its start."""
    made = setup(Words(**words))  # type: ignore[arg-type]
    lines: list[str] = []
    log = Log(lambda: EPOCH, lines.append)
    ranks = ranks_of(made.memory.settings.tp)
    try:
        for step in chain(starting(made.start), http_up(7, made.host, made.port)):
            if step.plain:
                log.plain(step.text)
            else:
                log.on_ranks(step.text, ranks if step.ranks else (ranks[0] if step.first else "",))
        log.say(READY)
    except StartFailedError:
        log.say(SIGQUIT_AT_START)
        log.say(kill_tree(7, itself=True))
    return made, "".join(lines).splitlines(keepends=True)
