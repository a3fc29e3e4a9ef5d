"""What a configuration leaves of a GPU's memory, told before a start."""

from __future__ import annotations

from dataclasses import dataclass

from draftmark.model.arms import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as its driver tells of it.

    Attributes:
        total_mib: Memory of the card.
        free_mib: Of it, free when nothing of the service runs; None when that is not known.
    """

    name: str
    total_mib: int
    free_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFigures:
    """What a server has when it is ready. None where it is not known, or where the engine has no such thing.

    Attributes:
        kv_tokens: Tokens in the KV pool.
        max_running_requests: Requests that it runs at once.
        state_slots: Recurrent states, of a model with linear attention.
    """

    kv_tokens: int | None = None
    max_running_requests: int | None = None
    state_slots: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitArm:
    """The verdict on one arm.

    Attributes:
        fits: Whether it starts; None when that cannot be told.
        figures: The best estimate.
        low: The least that it could have.
        high: The most that it could have.
        binding: What ends first: `kv-tokens`, `state-slots`, `requested-maximum`, `default-maximum` (nobody
            asked: the engine's own), `weights`, `graphs`; None when it
            cannot be told.
        because: The arithmetic, a line each, for people.
        to_get_more: What to change, in the engine's own flags.
    """

    arm: Arm
    fits: bool | None
    figures: FitFigures = FitFigures()
    low: FitFigures = FitFigures()
    high: FitFigures = FitFigures()
    binding: str | None = None
    because: tuple[str, ...] = ()
    to_get_more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The verdict on all arms of a service.

    Attributes:
        version: Of the engine, whose arithmetic this is; None when it was assumed.
        calibrated_from: The boot log that gave what cannot be computed; None without one.
        assumptions: What had to be assumed, in words.
    """

    engine: str
    version: str | None
    arms: tuple[FitArm, ...]
    calibrated_from: str | None = None
    assumptions: tuple[str, ...] = ()

    def of(self, arm: Arm) -> FitArm | None:
        """The verdict on one of them."""
        return next((each for each in self.arms if each.arm == arm), None)
