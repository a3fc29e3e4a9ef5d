"""What a service's engine may look at to tell what fits, and its verdict before a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftmark.cli.gpus import gpus_of
from draftmark.errors import DraftmarkError
from draftmark.model import Arm, Fit, Gpu
from draftmark.ports import FitScene, Host
from draftmark.service.local import LocalHost

if TYPE_CHECKING:
    from draftmark.cli.boot_log import BootLog
    from draftmark.cli.target import Target

CONFIG_BYTES = 4 << 20
NOT_SEEN = "no start of the service that tells its memory is in its journal: what fits goes by the card alone"


def host_of(target: Target) -> tuple[Host, dict[str, str]]:
    """Where its files and GPUs are, and the variables set for it."""
    if target.may_run:
        from draftmark.cli.unit_target import UnitTarget

        assert isinstance(target, UnitTarget)  # noqa: S101 - the only live kind
        return target.first.host, dict(target.first.unit.environment)
    return LocalHost(), dict(getattr(target, "env", {}))


def scene_of(target: Target, *, with_log: bool = True, gpus: tuple[Gpu, ...] = ()) -> FitScene:
    """A service as its engine may look at it: a live one with the log of how it started, where that can be seen.

    Args:
        target: The service.
        with_log: Whether to look for that log.
        gpus: Its cards, as the user says; else its host's driver is asked.

    Raises:
        HostError: Its host cannot be reached any more.
    """
    host, environment = host_of(target)
    log = _own_log(target) if with_log else None
    return FitScene(
        read=lambda path: host.read(path, CONFIG_BYTES),
        gpus=lambda: gpus or gpus_of(host),
        log=None if log is None else log.lines(),
        log_name=None if log is None else log.name,
        version=target.version,
        environment=environment,
    )


def told_by_log(target: Target) -> bool:
    """Whether there could be a log of how it started that tells its memory."""
    return target.may_run and target.engine.name == "sglang"


def _own_log(target: Target) -> BootLog | None:
    if not told_by_log(target):
        return None
    from draftmark.cli.boot_log import boot_log_of_unit
    from draftmark.cli.unit_target import UnitTarget

    assert isinstance(target, UnitTarget)  # noqa: S101 - the only live kind
    return boot_log_of_unit(target.first)


def predicted(target: Target, arms: tuple[Arm, ...], notes: list[str], gpus: tuple[Gpu, ...] = ()) -> Fit | None:
    """What each arm leaves of the memory; None where nobody can tell, with a note where that has a reason.

    A run does not depend on it: an arm whose verdict is missing is started.
    """
    found, problem = _tried(target, arms, gpus, with_log=True)
    if problem is not None and told_by_log(target):  # the log may be what is wrong
        notes.append(f"how it started tells no memory: {problem}")
        found, problem = _tried(target, arms, gpus, with_log=False)
    if problem is not None:
        notes.append(f"what fits was not predicted: {problem}")
    if found is None:
        return None
    if found.calibrated_from is not None:
        notes.append(f"what fits is calibrated from: {found.calibrated_from}")
    elif told_by_log(target):
        notes.append(NOT_SEEN)
    own = found.arms[0] if found.arms else None
    if own is not None and own.fits is False:
        why = "the prediction is off" if target.may_run else "; ".join(own.because[:1]) or "memory ends first"
        notes.append(f"by the memory arithmetic the service would not start as it is: {why}")
    return found


def predicted_from(target: Target, arms: tuple[Arm, ...], path: Path) -> Fit | None:
    """The same from the log of a start; None where nobody can tell by it."""
    from draftmark.cli.boot_log import boot_log_of

    try:
        log = boot_log_of(path)
        if not log.told:
            return None
        name = f"{path.parent.name}/{path.name}"
        scene = replace(scene_of(target, with_log=False), log=log.lines(), log_name=name)
        return target.engine.fit(target.command, arms, scene)
    except DraftmarkError:
        return None


def _tried(
    target: Target, arms: tuple[Arm, ...], gpus: tuple[Gpu, ...], *, with_log: bool
) -> tuple[Fit | None, str | None]:
    try:
        return target.engine.fit(target.command, arms, scene_of(target, with_log=with_log, gpus=gpus)), None
    except DraftmarkError as error:
        more = f"; {error.next_step}" if error.next_step else ""
        return None, target.redactor.text(f"{error.what}{more}")
