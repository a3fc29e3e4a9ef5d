"""How a run finds its depth: which way where nobody says, and what the forecast is told of the model."""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

from draftmark.cli.fitting import predicted_from
from draftmark.cli.target import Target
from draftmark.engines.sglang.arms import TOPK
from draftmark.errors import DraftmarkError, UsageError
from draftmark.model import Arm, Fit, Refusal
from draftmark.run.records import FORECAST, GRID, RunInfo, fitted
from draftmark.tune.fitting import DOES_NOT_FIT, refusal_of

_BLOCKS = ("dflash", "dspark")  # drafted in one piece: of another size it is another draft


def search_of(args: argparse.Namespace, target: Target, baseline: Arm) -> str:
    """`grid` or `forecast`.

    A forecast where a start is dear and depth is a chain's: SGLang, and live units. A grid where rounds are asked
    for, where a start takes a second, and where drafts come from n-grams, whose depth says little.

    Raises:
        UsageError: A forecast is asked for, and the service itself varies its depth.
    """
    asked = args.search
    if args.knob:
        return _with_knobs(args, baseline)
    if asked == FORECAST and baseline.knobs:
        raise UsageError(
            "a forecast needs a fixed depth to start from",
            evidence=(f"the service as it is: {baseline.label}",),
            next_step="--search grid",
        )
    if asked is not None:
        return str(asked)
    dear = target.may_run or target.engine.name == "sglang"
    unfit = bool(baseline.knobs) or _method(target).startswith("ngram")
    return FORECAST if dear and args.rounds is None and not unfit else GRID


def _with_knobs(args: argparse.Namespace, baseline: Arm) -> str:
    """Each setting is asked for by what was seen: a grid of knobs is never run."""
    if args.search == GRID:
        raise UsageError(
            "--search grid and --knob exclude each other",
            next_step="leave --search out; settings are asked for one after the other",
        )
    if baseline.knobs:
        raise UsageError(
            "--knob needs a fixed depth to start from",
            evidence=(f"the service as it is: {baseline.label}",),
            next_step="give it a fixed depth, or leave --knob out",
        )
    return FORECAST


def trees_of(target: Target, arms: tuple[Arm, ...]) -> bool:
    """Whether the rounds of one depth do not tell another's: drafts that branch, and drafts in one piece."""
    if _method(target).startswith(_BLOCKS):
        return True
    try:
        words = target.engine.with_arm(target.command, max(arms, key=lambda arm: arm.depth))
    except UsageError:
        return False
    return any(word == TOPK and value != "1" for word, value in pairwise(words))


def _method(target: Target) -> str:
    engine, command = target.engine, target.command
    try:
        return engine.summary(engine.with_arm(command, Arm(1))).get("method", "").lower()
    except UsageError:
        return ""


def experts_of(target: Target, arms: tuple[Arm, ...]) -> tuple[int, int] | None:
    """Of a mixture: experts of a layer, and those that a token meets; None where neither is known."""
    from draftmark.cli.roofline import shape_of

    try:
        shape = shape_of(target, max(arm.depth for arm in arms))
    except DraftmarkError:
        return None
    return (shape.experts, shape.experts_per_token) if shape is not None and shape.experts else None


def learned_from(target: Target, info: RunInfo, log: Path) -> dict[str, object] | None:
    """What fits by the log of the baseline's own start, and what is not started for it; None without a word of it.

    Only SGLang's log tells. A unit's fit is calibrated from its journal before anything is started.
    """
    if target.engine.name != "sglang" or target.may_run:
        return None
    arms = tuple(dict.fromkeys((info.baseline, *info.arms)))
    fit = predicted_from(target, arms, log)
    own = fit.of(info.baseline) if fit is not None else None
    if fit is None or fit.calibrated_from is None or own is None or own.fits is False:
        return None
    return fitted(fit, refused_by(fit, info))


def refused_by(fit: Fit, info: RunInfo) -> dict[str, Refusal]:
    """What is not started, by this fit in the place of the one before; other refusals stay."""
    found = {name: refusal for name, refusal in info.refused.items() if refusal.code != DOES_NOT_FIT}
    for arm in info.arms:
        verdict = fit.of(arm)
        if arm != info.baseline and arm.name not in found and verdict is not None:
            refusal = refusal_of(verdict)
            if refusal is not None:
                found[arm.name] = refusal
    return found
