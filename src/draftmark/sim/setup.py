"""From the words of a simulated server to everything that it is made of. Reads files, starts nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass

from draftmark.engines.model_config import ModelShape, read_shape
from draftmark.engines.sglang import refusals
from draftmark.engines.sglang.versions import Rules, facts, rules_for
from draftmark.errors import UsageError
from draftmark.sim.acceptance import Acceptance, default_acceptance
from draftmark.sim.arguments import server_args
from draftmark.sim.commandline import command_of
from draftmark.sim.cost import RoundCost, default_cost
from draftmark.sim.graphs import batch_sizes
from draftmark.sim.launcher import check
from draftmark.sim.loading import Start
from draftmark.sim.memory import Memory, memory_of
from draftmark.sim.presets import Cards, Model, cards_of, model_of
from draftmark.sim.scheduler import Limits
from draftmark.sim.words import Words

_PORTS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A simulated server, not started yet.

    Attributes:
        command: As SGLang's own command line would be.
        args: `server_args`.
    """

    words: Words
    rules: Rules
    command: tuple[str, ...]
    model: Model
    shape: ModelShape
    cards: Cards
    memory: Memory
    cost: RoundCost
    acceptance: Acceptance
    limits: Limits
    args: dict[str, object]

    @property
    def start(self) -> Start:
        """What its log tells of the start."""
        given = refusals.deprecated(self.command, self.rules)
        return Start(
            minor=self.rules.minor,
            memory=self.memory,
            shape=self.shape,
            args=self.args,
            deprecated=tuple((each.spelled, each.option.instead if each.option else "") for each in given),
            die=self.words.die,
        )

    @property
    def host(self) -> str:
        """Where it listens."""
        return str(self.args["host"])

    @property
    def port(self) -> int:
        """Where it listens."""
        port = self.args["port"]
        return port if isinstance(port, int) else int(facts()["default_port"])


def setup(words: Words) -> Setup:
    """Put a simulated server together.

    Raises:
        LauncherError: SGLang of this version would refuse the flags.
        UsageError: The cards are too few, or the port is none.
        BadInputError: The model, or what it is calibrated from, cannot be used.
    """
    model, cards, rules = model_of(words.model), cards_of(words.gpus), rules_for(words.version)
    command = command_of(words, model, cards)
    check(command, rules)
    memory = memory_of(command, model, cards, words.version)
    _enough_cards(memory, cards)
    shape = read_shape(model.config)
    cost = default_cost(shape, memory, cards)
    acceptance = default_acceptance(memory.settings.algorithm, _simulated_length())
    if words.calibrate is not None:
        from draftmark.sim.calibrate import calibrated

        cost, acceptance = calibrated(words.calibrate, cost, acceptance)
    sizes = list(batch_sizes(memory))
    made = Setup(
        words=words,
        rules=rules,
        command=command,
        model=model,
        shape=shape,
        cards=cards,
        memory=memory,
        cost=cost,
        acceptance=acceptance,
        limits=_limits(memory, sizes),
        args=server_args(memory, rules.minor, seed=words.seed, graph_sizes=sizes),
    )
    if not 0 < made.port < _PORTS:
        raise UsageError(f"--port {made.port} is none", next_step=f"--port N, from 1 to {_PORTS - 1}")
    return made


def _enough_cards(memory: Memory, cards: Cards) -> None:
    needed = memory.settings.tp * memory.settings.pp
    if needed > cards.count:
        raise UsageError(
            f"{needed} GPUs are needed, and there is {cards.count}",
            evidence=(f"--tp-size {memory.settings.tp}",),
            next_step=f"--gpus {needed}x…, or a smaller --tp-size",
        )


def _limits(memory: Memory, sizes: list[int]) -> Limits:
    settings, cost = memory.settings, memory.case.parts()[1]
    drafted = settings.draft_tokens
    reserved = 2 * max(settings.steps * settings.topk, drafted) if settings.algorithm is not None else 1
    chain = settings.eagle
    return Limits(
        tokens=memory.pools.tokens,
        running=memory.pools.running,
        slots=memory.pools.slots,
        per_request=cost.per_request if cost is not None else 1,
        chunk=max(1, memory.chunked_prefill if memory.chunked_prefill > 0 else 16384),
        steps=settings.steps if chain else min(1, drafted),
        verified=max(1, drafted),
        drafts=max(0, drafted - 1),
        reserved=reserved,
        graphs=tuple(sizes),
    )


def most_accepted(memory: Memory) -> int:
    """Drafts that one round can take: the steps of a chain or tree, all but one of a block."""
    settings = memory.settings
    return settings.steps if settings.eagle else max(0, settings.draft_tokens - 1)


def _simulated_length() -> float | None:
    """SGLANG_SIMULATE_ACC_LEN, as SGLang reads it."""
    try:
        length = float(os.environ.get("SGLANG_SIMULATE_ACC_LEN", "0"))
    except ValueError:
        return None
    return length if length > 0 else None
