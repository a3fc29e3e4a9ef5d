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
    return Refusal(DOES_NOT_FIT, f"does not fit: {why}" if arm.binding is not None else f"does not start: {why}")


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
    """What came otherwise than predicted, both side by side, in words; None when nothing did."""
    if predicted is None or started is None:
        return None
    if predicted.fits is False and started:
        why = f" ({'; '.join(predicted.because)})" if predicted.because else ""
        return f"it was predicted not to fit{why}, and started{_with(actual)}"
    if predicted.fits is True and not started and actual is None:
        return f"it was predicted to fit{_with(predicted.figures)}, and did not start"
    if actual is None or not started:
        return None
    outside = [
        f"{words}: {value:,} instead of {_range(low, high)}"
        for name, words in _FIGURES
        if (value := getattr(actual, name)) is not None
        and (low := getattr(predicted.low, name)) is not None
        and (high := getattr(predicted.high, name)) is not None
        and not low * 0.998 - 1 <= value <= high * 1.002 + 1
    ]
    return "; ".join(outside) or None


_FIGURES = (
    ("kv_tokens", "KV tokens"),
    ("max_running_requests", "requests at once"),
    ("state_slots", "state slots"),
)


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _with(figures: FitFigures | None) -> str:
    """` with 338,982 KV tokens, 48 requests at once`."""
    values = [(getattr(figures, name), words) for name, words in _FIGURES] if figures is not None else []
    told = ", ".join(f"{value:,} {words}" for value, words in values if value is not None)
    return f" with {told}" if told else ""
