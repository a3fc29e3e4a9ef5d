"""A memory verdict as plain values, and beside it what a start really had. Pure."""

from __future__ import annotations

from typing import Any

from draftmark.model import Fit, FitArm, FitFigures, Refusal

DOES_NOT_FIT = "does-not-fit"


def fit_document(fit: Fit) -> dict[str, Any]:
    """The fields of `draftmark.fit/1` that come from the verdict."""
    return {
        "engine": fit.engine,
        "version": fit.version,
        "calibrated_from": fit.calibrated_from,
        "assumptions": list(fit.assumptions),
        "arms": [{"arm": arm.arm.name, "depth": arm.arm.depth, **arm_document(arm)} for arm in fit.arms],
    }


def arm_document(arm: FitArm) -> dict[str, Any]:
    """One arm of it."""
    return {
        "fits": arm.fits,
        **figures_document(arm.figures),
        "binding": arm.binding,
        "low": figures_document(arm.low),
        "high": figures_document(arm.high),
        "because": list(arm.because),
        "to_get_more": list(arm.to_get_more),
    }


def figures_document(figures: FitFigures) -> dict[str, Any]:
    """What a server has, or would have."""
    return {
        "kv_tokens": figures.kv_tokens,
        "max_running_requests": figures.max_running_requests,
        "state_slots": figures.state_slots,
    }


def refusal_of(arm: FitArm) -> Refusal | None:
    """Why an arm need not be started, where it surely does not fit."""
    if arm.fits is not False:
        return None
    why = "; ".join(arm.because) or f"{arm.binding or 'memory'} ends first"
    return Refusal(DOES_NOT_FIT, f"does not fit: {why}")


def compared(predicted: FitArm | None, actual: FitFigures | None, *, started: bool | None) -> dict[str, Any] | None:
    """An arm's verdict, with what it really had beside it; None where there is neither.

    Args:
        predicted: The verdict before the start.
        actual: By the log of a start.
        started: Whether it became ready; None when it was not tried.
    """
    if predicted is None and actual is None:
        return None
    return {
        **({"fits": None} if predicted is None else arm_document(predicted)),
        "actual": None if actual is None else figures_document(actual),
        "surprise": surprise(predicted, actual, started=started),
    }


def surprise(predicted: FitArm | None, actual: FitFigures | None, *, started: bool | None) -> str | None:
    """What came otherwise than predicted, in words; None when nothing did."""
    if predicted is None or started is None:
        return None
    if predicted.fits is False and started:
        return "it was predicted not to fit, and started"
    if predicted.fits is True and not started and actual is None:
        return "it was predicted to fit, and did not start"
    if actual is None or not started:
        return None
    outside = [
        f"{name}: {value:,} instead of {low:,} to {high:,}"
        for name, value, low, high in (
            ("KV tokens", actual.kv_tokens, predicted.low.kv_tokens, predicted.high.kv_tokens),
            (
                "requests at once",
                actual.max_running_requests,
                predicted.low.max_running_requests,
                predicted.high.max_running_requests,
            ),
        )
        if value is not None
        and low is not None
        and high is not None
        and not low * 0.998 - 1 <= value <= high * 1.002 + 1
    ]
    return "; ".join(outside) or None
