"""What a service's engine may look at to tell what fits, and its verdict before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftmark.cli.gpus import gpus_of
from draftmark.errors import DraftmarkError
from draftmark.model import Arm, Fit
from draftmark.ports import FitScene, Host
from draftmark.service.local import LocalHost

if TYPE_CHECKING:
    from draftmark.cli.target import Target

CONFIG_BYTES = 4 << 20


def host_of(target: Target) -> tuple[Host, dict[str, str]]:
    """Where its files and GPUs are, and the variables set for it."""
    if target.may_run:
        from draftmark.cli.unit_target import UnitTarget

        assert isinstance(target, UnitTarget)  # noqa: S101 - the only live kind
        return target.first.host, dict(target.first.unit.environment)
    return LocalHost(), dict(getattr(target, "env", {}))


def scene_of(target: Target) -> FitScene:
    """A service as its engine may look at it."""
    host, environment = host_of(target)
    return FitScene(
        read=lambda path: host.read(path, CONFIG_BYTES),
        gpus=lambda: gpus_of(host),
        version=target.version,
        environment=environment,
    )


def predicted(target: Target, arms: tuple[Arm, ...], notes: list[str]) -> Fit | None:
    """What each arm leaves of the memory; None where nobody can tell, with a note where that has a reason.

    A run does not depend on it: an arm whose verdict is missing is started.
    """
    try:
        found = target.engine.fit(target.command, arms, scene_of(target))
    except DraftmarkError as error:
        notes.append(f"what fits was not predicted: {target.redactor.text(error.what)}")
        return None
    if found is not None and found.arms and found.arms[0].fits is False:
        notes.append("by the memory arithmetic the service would not start as it is: the prediction is off")
    return found
