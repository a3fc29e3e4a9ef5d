"""What the cards bound of a service, for `inspect` and `plan`; nothing where model or card is not known."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmark.cli.fitting import scene_of
from draftmark.engines.roofline import Measured, Roofline, document, measured_rounds
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.roofline import same_model, served
from draftmark.errors import BadInputError, DraftmarkError, UsageError
from draftmark.model import Arm, Gpu
from draftmark.ports import FitScene
from draftmark.sim.engine import SimulatedSGLang
from draftmark.sim.words import place_of

if TYPE_CHECKING:
    from draftmark.cli.target import Target
    from draftmark.engines.model_config import ModelShape

LEVELS = (1, 8, 32)
_CONTEXT = 1024
# Of a service that drafts nothing and could: SGLang's own default of steps.
_ASKED_DEPTH = 3
_OWN_LAYERS = ("--speculative-algorithm", "NEXTN")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Where measured rounds are taken from."""
    parser.add_argument(
        "--measured",
        type=Path,
        metavar="RUN",
        help="a run directory of this service: its measured rounds are shown beside what the GPU bounds",
    )


def described(
    target: Target,
    measured: Path | None,
    *,
    depths: Sequence[int] | None = None,
    levels: Sequence[int] = LEVELS,
    gpus: tuple[Gpu, ...] = (),
) -> dict[str, Any] | None:
    """The `roofline` of a service; None where there is nothing to say.

    Args:
        target: The service; only SGLang's tells its model by a config.json.
        measured: A run directory.
        depths: Of the arms; None for the service's own depth, or that of SGLang's default where it could draft.
        levels: Concurrencies.
        gpus: Its cards, as the user says; else its host's driver is asked.
    """
    if not isinstance(target.engine, SGLang):
        return None
    rounds = () if measured is None else _rounds(measured, target)
    try:
        engine, command, scene = _stage(target, target.engine, gpus)
        wanted = tuple(depths) if depths is not None else (engine.depth(command) or _ASKED_DEPTH,)
        found = served(command, _drafting(command, engine, max(wanted)), scene, scene.version)
        if found is None:
            return None
        drafts = found[0].draft != "unknown" or depths is not None
        return document(
            Roofline(found[0]),
            wanted if drafts else (0,),
            levels,
            _CONTEXT,
            measured=rounds,
            assumptions=found[1] if drafts else (),
        )
    except DraftmarkError:
        return None


def shape_of(target: Target, depth: int) -> ModelShape | None:
    """The model that a service serves; None where that, or its card, is not known.

    Raises:
        DraftmarkError: The model cannot be read.
    """
    if not isinstance(target.engine, SGLang):
        return None
    drafting = _drafting(target.command, target.engine, depth)
    found = served(target.command, drafting, scene_of(target, with_log=False), target.version)
    return None if found is None else found[0].shape


def _stage(target: Target, engine: SGLang, gpus: tuple[Gpu, ...]) -> tuple[SGLang, tuple[str, ...], FitScene]:
    """Engine, command line and host; of a simulated server those that are simulated."""
    scene = scene_of(target, gpus=gpus)
    if not isinstance(engine, SimulatedSGLang):
        return engine, target.command, scene
    scene = engine.scene(target.command, scene)
    return (*engine.stands_for(target.command), replace(scene, gpus=lambda: gpus) if gpus else scene)


def _stands_for(command: tuple[str, ...]) -> tuple[str, ...]:
    """SGLang's command line: of a simulated server that which it stands for."""
    simulated = SimulatedSGLang()
    return simulated.stands_for(command)[1] if simulated.recognises(command) else command


def _drafting(command: tuple[str, ...], engine: SGLang, depth: int) -> Sequence[str]:
    """The command line with drafts; where it names no method, with the model's own layers."""
    try:
        return engine.with_arm(command, Arm(depth))
    except UsageError:
        return engine.with_arm((*command, *_OWN_LAYERS), Arm(depth))


def _rounds(run: Path, target: Target) -> tuple[Measured, ...]:
    from draftmark.run.directory import RunDirectory
    from draftmark.tune.result import derive

    record = RunDirectory.open(run).load()
    info = record.info
    ours, theirs = _stands_for(target.command), _stands_for(tuple(info.command))
    if info.engine != target.engine.name or not same_model(theirs, ours, target.version):
        raise BadInputError(
            f"{run} measured another model, or another number of GPUs: its rounds are not this service's",
            evidence=(info.service,),
            next_step="name a run of this service, or leave --measured out",
        )
    if theirs != info.command and (pace := place_of(info.command).words.serve_speed) != 1.0:
        raise BadInputError(
            f"{run} measured a simulated server whose tokens came {pace:g} times faster: its rounds are none",
            evidence=(info.service,),
            next_step="name a run without --serve-speed, or leave --measured out",
        )
    return measured_rounds(derive(record))
