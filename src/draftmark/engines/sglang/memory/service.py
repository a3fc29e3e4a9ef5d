"""What all arms of a service share, and what is found on the way to their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from draftmark.engines.sglang.memory import reading
from draftmark.engines.sglang.memory.boot import Boot
from draftmark.engines.sglang.memory.cards import BEFORE_LOADING, GIB, MIB
from draftmark.engines.sglang.memory.kv_type import automatic, of_log
from draftmark.engines.sglang.memory.refused import check_choices
from draftmark.engines.sglang.memory.resolved import resolved
from draftmark.engines.sglang.memory.rules import Choice
from draftmark.engines.sglang.memory.settings import (
    Settings,
    settings_of,
    values_of,
)
from draftmark.errors import UsageError
from draftmark.model import Arm, Gpu
from draftmark.ports import FitScene

WithArm = Callable[[Sequence[str], Arm, str], Sequence[str]]
"""A command line with an arm's flags, by the rules of a version."""


@dataclass(slots=True, kw_only=True)
class Service:
    """What all arms share, and what is found on the way."""

    scene: FitScene
    choice: Choice
    command: tuple[str, ...]
    with_arm: WithArm
    told: str
    target: reading.Target
    path: str
    boot: Boot | None
    gpus: tuple[Gpu, ...]
    assumptions: dict[str, None]
    boot_flags: bool = False
    used: bool = False
    unused: dict[str, None] = field(default_factory=dict)

    def assume(self, *what: str | None) -> None:
        """Note what had to be assumed, once."""
        self.assumptions.update(dict.fromkeys(each for each in what if each is not None))

    def reject(self, why: str) -> None:
        """Note why the log is not used."""
        self.unused[why] = None
        self.assume(why)

    def values(self, arm: Arm) -> dict[str, object]:
        """The arguments of an arm; what its command line leaves to the card as the log has it."""
        try:
            words = self.with_arm(self.command, arm, self.told)
        except UsageError:
            named = values_of(self.command, self.told).get("speculative_algorithm")
            if not arm.depth or not self.target.shape.mtp_layers or named not in (None, "", "NONE"):
                raise
            self.command = (*self.command, "--speculative-algorithm", "NEXTN")
            words = self.with_arm(self.command, arm, self.told)
            self.assume("no speculation method is named: NEXTN, which drafts with the model's own layers")
        own = values_of(words, self.told)
        resolved = {} if self.boot is None else self.boot.resolved()
        return {**resolved, **{name: value for name, value in own.items() if value is not None}}


def settings_in_force(service: Service, values: Mapping[str, object]) -> Settings:
    """An arm's flags, with what SGLang sets by itself.

    Raises:
        UsageError: A value is none.
    """
    try:
        settings = settings_of(values, service.target.shape.architecture)
    except ValueError as error:
        raise UsageError(str(error), next_step="check the command line") from None
    if service.choice.assumption is None and service.boot is None:
        check_choices(service.choice.rules, settings, values)
    return in_force_of(service, settings)


def in_force_of(service: Service, settings: Settings) -> Settings:
    """With what SGLang sets by itself."""
    card = min((each.total_mib for each in service.gpus), default=None)
    if card is None and service.boot is not None and (before := service.boot.log.gpu_avail_before_weights_gib):
        card = round((before * GIB + BEFORE_LOADING) / MIB)
    return resolved(service.choice.rules, settings, service.target.shape, card, service.scene.environment)


def with_kv_type(service: Service, settings: Settings) -> tuple[Settings, tuple[Settings, ...]]:
    """With what `--kv-cache-dtype auto` is, and with what it may be as well."""
    if settings.kv_dtype != "auto":
        return settings, ()
    found = of_log(service.boot.log) if service.boot is not None else None
    if found is None:
        target = service.target
        found = automatic(service.choice.rules, target.shape, target.quantization, service.gpus)
    service.assume(found.assumption)
    other = () if found.otherwise is None else (replace(settings, kv_dtype=found.otherwise),)
    return replace(settings, kv_dtype=found.name), other
