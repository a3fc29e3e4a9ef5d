"""Where a budget comes from: the log of a start, or the card; and the draft that it pays for."""

from __future__ import annotations

from dataclasses import replace

from draftmark.engines.sglang.memory import budget as budgets
from draftmark.engines.sglang.memory import reading
from draftmark.engines.sglang.memory.anatomy import Anatomy, Draft, Tensors
from draftmark.engines.sglang.memory.boot import Boot, same_weights
from draftmark.engines.sglang.memory.cards import GIB, MIB
from draftmark.engines.sglang.memory.files import read_config
from draftmark.engines.sglang.memory.fit import Case
from draftmark.engines.sglang.memory.fraction import Defaults
from draftmark.engines.sglang.memory.loading import loading_of
from draftmark.engines.sglang.memory.rules import has_draft_class
from draftmark.engines.sglang.memory.service import Service, in_force_of, with_kv_type
from draftmark.engines.sglang.memory.settings import Settings
from draftmark.errors import BadInputError, UsageError


def draft_of(service: Service, settings: Settings, model: Anatomy) -> Draft | None:
    """What an arm loads to draft with; None where it loads nothing."""
    if not budgets.has_draft_weights(settings):
        return None
    path = settings.draft_path
    if path is None or path in (settings.model_path, service.scene.model_dir):
        own = reading.own_draft(service.target, settings)
        return own if own is not None else _unnamed_draft(service, settings, model)
    try:
        return reading.other_draft(read_config(service.scene, path), settings)
    except BadInputError as error:
        if settings.algorithm == "STANDALONE":
            raise
        service.assume(f"the draft's config cannot be used ({error.what}): one layer like the target's is assumed")
    return _one_layer(model)


def _unnamed_draft(service: Service, settings: Settings, model: Anatomy) -> Draft:
    """What SGLang makes of a target without layers to draft with, where no draft is named."""
    told = f"{settings.algorithm} without a draft path, and the config names no layers to draft with: "
    if has_draft_class(model.architecture):
        service.assume(f"{told}one layer like the target's is assumed")
        return _one_layer(model)
    service.assume(f"{told}SGLang loads the whole model a second time, as its own draft")
    whole = reading.other_draft(service.target.config, settings)
    return replace(whole, weights=model.weights if model.weights.bytes else whole.weights)


def _one_layer(model: Anatomy) -> Draft:
    """A draft of which nothing is known."""
    layer = model.weights.bytes // max(1, model.layers)
    return Draft(
        weights=Tensors(bytes=2 * layer, spread=1.0), nextn=1, layers=1, architecture="", wrapped=False, cell=None
    )


def fraction_of(service: Service, settings: Settings, usual: Defaults | None) -> tuple[float, float]:
    """The fraction in force, and by how much it may be off."""
    boot = service.boot
    if boot is not None and boot.fraction is not None and settings.fraction in (None, boot.fraction):
        reserved = bool(service.choice.rules.speculation_reserve)
        if not reserved or (boot.settings.algorithm is None) == (settings.algorithm is None):
            return boot.fraction, 0.0
    if settings.fraction is not None:
        return settings.fraction, 0.0
    if usual is None:
        raise UsageError(
            "how much memory the GPU has is not known, and with it the default of --mem-fraction-static",
            next_step="give --gpu h200, --gpu 80GiB, or a boot log",
        )
    if usual.fraction > 0:
        service.assume(f"--mem-fraction-static is not given: SGLang's default for this card, {usual.fraction:.3f}")
    return usual.fraction, usual.spread


def budget_of(service: Service, case: Case) -> tuple[budgets.Budget, bool]:
    """The budget, and whether it is that of a start whose pools follow from it."""
    boot = service.boot
    if boot is not None:
        found = _from_boot(service, boot, case)
        if found is not None:
            service.used = True
            service.assume(*found.remarks)
            return found.budget, found.exact
        if not service.unused:
            service.reject("the log does not tell the memory of this start: nothing is taken from it")
    if not service.gpus:
        raise UsageError(
            "how much memory the GPU has is not known"
            + (", and the log does not tell it" if service.unused else ""),
            evidence=tuple(service.unused),
            next_step="give --gpu h200 or --gpu 80GiB" + (" as well" if service.unused else ", or a boot log"),
        )
    if not case.model.weights.bytes:
        reading.anatomy_of(service.target, case.settings)  # says why they cannot be told
    gpu = min(service.gpus, key=lambda each: each.total_mib)
    if case.settings.tp * case.settings.pp > 1:
        service.assume("what a tensor-parallel group's communication takes was not measured")
    return budgets.from_card(gpu, case.settings, case.model, case.draft), False


def _from_boot(service: Service, boot: Boot, case: Case) -> budgets.Calibration | None:
    differ = same_weights(boot.settings, case.settings)
    if differ:
        service.reject(f"the log is of a start with another {', '.join(differ)}: its figures do not hold")
        return None
    if boot.fraction is None:
        return None
    resident = case.rules.draft_resident and budgets.has_draft_weights(boot.settings)
    loaded = loading_of(boot.log, resident=resident)
    if isinstance(loaded, str):
        service.reject(loaded)
        return None
    if (small := _too_small(service, boot)) is not None:
        service.reject(small)
        return None
    settings, _ = with_kv_type(service, in_force_of(service, boot.settings))
    own = replace(case, settings=settings, others=(), otherwise=())
    return budgets.from_boot(
        boot.log, case.rules, settings, boot.fraction, case.draft or _boot_draft(service, boot, case),
        own.pools, own.interval,
    )  # fmt: skip


def _too_small(service: Service, boot: Boot) -> str | None:
    """Why a log is not of a start on this card, in words. One with less free may be: others held the rest."""
    before = boot.log.gpu_avail_before_weights_gib
    card = min(service.gpus, key=lambda each: each.total_mib, default=None)
    if before is None or card is None:
        return None
    total = card.total_mib * MIB / GIB
    if before > total:
        return (
            f"the log is of another card: {before:.2f} GiB were free before loading, and {card.name} has "
            f"{total:.2f} GiB: nothing is taken from it"
        )
    if before < 0.95 * total - 2.5:
        service.assume(
            f"{before:.2f} GiB were free before loading in the log, of {card.name}'s {total:.2f} GiB: its figures "
            "hold where as much is held by others, and for no other card"
        )
    return None


def _boot_draft(service: Service, boot: Boot, case: Case) -> Draft | None:
    """The draft of the log's start, for an arm that has none."""
    return draft_of(service, boot.settings, case.model)
