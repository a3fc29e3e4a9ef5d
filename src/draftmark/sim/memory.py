"""The memory of a simulated start: what `draftmark fit` estimates is what this server has, to the token. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from draftmark.engines.sglang.memory import budget as budgets
from draftmark.engines.sglang.memory import reading
from draftmark.engines.sglang.memory.anatomy import Anatomy, Draft
from draftmark.engines.sglang.memory.cards import UNPRINTED
from draftmark.engines.sglang.memory.fit import Case
from draftmark.engines.sglang.memory.fraction import defaults
from draftmark.engines.sglang.memory.kv_type import automatic
from draftmark.engines.sglang.memory.pools import Pools
from draftmark.engines.sglang.memory.rules import choose
from draftmark.engines.sglang.memory.settings import Settings, settings_of, values_of
from draftmark.engines.sglang.memory.slack import Slack, graphs_wanted
from draftmark.errors import UsageError
from draftmark.ports import FitScene
from draftmark.sim.presets import Cards, Model, config_bytes

GIB = float(1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One start on one rank, bytes.

    Attributes:
        values: The command line's flags by argument name.
        begin: Free before the weights, as printed.
        weights: Of the target; `draft_weights`: of the draft, 0 without one.
        context: Longest request, tokens.
        chunked_prefill: `--chunked-prefill-size` in force.
        graph_max_bs: Largest batch that graphs are captured for.
        fraction: `--mem-fraction-static` in force.
    """

    case: Case
    values: Mapping[str, object]
    pools: Pools
    slack: Slack
    begin: float
    weights: float
    draft_weights: float
    context: int
    chunked_prefill: int
    graph_max_bs: int
    fraction: float

    @property
    def settings(self) -> Settings:
        """What was asked for."""
        return self.case.settings

    @property
    def model(self) -> Anatomy:
        """The target."""
        return self.case.model

    @property
    def adaptive(self) -> bool:
        """Whether drafts were asked to change their length."""
        return self.values.get("speculative_adaptive") is True and self.settings.algorithm is not None

    @property
    def starts(self) -> bool:
        """Whether it comes up."""
        return self.pools.starts and self.slack.enough is not False

    @property
    def pool_bytes(self) -> float:
        """What the target's pools take."""
        cell = self.case.parts()[0]
        return self.pools.state_taken + cell.fixed + max(0, self.pools.tokens) * self._target_cell()

    def _target_cell(self) -> float:
        cell = self.case.parts()[0]
        window = cell.bytes if self.model.window is not None else cell.target
        return float(window)

    @property
    def draft_pool_bytes(self) -> float:
        """What the draft's pool takes, whoever pays for it."""
        cell = self.case.parts()[0]
        charged = cell.bytes - cell.target if self.model.window is None else 0.0
        return max(0, self.pools.tokens) * (charged or cell.uncounted_draft)


def memory_of(command: Sequence[str], model: Model, cards: Cards, version: str) -> Memory:
    """The memory of SGLang's command line on these cards.

    Raises:
        BadInputError: The model is not known, or its weights cannot be told.
        UsageError: A flag's value is none.
    """
    rules = choose(version).rules
    values = values_of(command, version)
    target = reading.Target(model.config)
    try:
        settings = settings_of(values, target.shape.architecture)
    except ValueError as error:
        raise UsageError(str(error), next_step="check the flags behind --") from None
    if settings.kv_dtype == "auto":
        settings = replace(
            settings, kv_dtype=automatic(rules, target.shape, target.quantization, (cards.gpu,)).name
        )
    anatomy = reading.anatomy_of(target, settings)
    draft = _draft(target, settings, model)
    usual = defaults(rules, settings, anatomy, cards.gpu.total_mib)
    fraction = settings.fraction if settings.fraction is not None else usual.fraction
    case = Case(
        rules=rules,
        others=(),
        settings=settings,
        model=anatomy,
        draft=draft,
        budget=budgets.from_card(cards.gpu, settings, anatomy, draft),
        fraction=fraction,
        fraction_spread=0.0,
        extra_spread=0.0,
        wanted=graphs_wanted(None, 0, settings, usual.graphs_mib),
        environment={},
    )
    pools = case.pools(case.available())
    return Memory(
        case=case,
        values=values,
        pools=pools,
        slack=case.slack(pools),
        begin=case.budget.pre - UNPRINTED,
        weights=case.budget.target - UNPRINTED,
        draft_weights=case.budget.draft if budgets.has_draft_weights(settings) else 0.0,
        context=anatomy.context,
        chunked_prefill=usual.chunked_prefill,
        graph_max_bs=usual.max_bs,
        fraction=fraction,
    )


def _draft(target: reading.Target, settings: Settings, model: Model) -> Draft | None:
    """Who drafts: the target's own layers, or a model of its own that must be known as well.

    Raises:
        BadInputError: The draft's config cannot be read.
    """
    if not budgets.has_draft_weights(settings):
        return None
    path = settings.draft_path
    if path is None or path in (settings.model_path, model.path):
        return reading.own_draft(target, settings)
    from draftmark.engines.sglang.memory.files import read_config

    return reading.other_draft(read_config(FitScene(read=read_file), path), settings)


def read_file(path: str) -> bytes:
    """A preset's config, else a file of this computer."""
    found = config_bytes(path)
    if found is not None:
        return found
    with open(path, "rb") as file:  # noqa: PTH123 - a path may hold what Path would fold
        return file.read(4 << 20)
