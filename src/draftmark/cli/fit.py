"""`draftmark fit`: what each depth leaves of the GPU's memory. Starts nothing."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from draftmark.cli import hosts, options
from draftmark.cli.boot_log import BootLog, boot_log_of
from draftmark.cli.fitting import CONFIG_BYTES, NOT_SEEN, scene_of, told_by_log
from draftmark.cli.gpus import add_argument as add_gpu
from draftmark.cli.gpus import gpus_of, named
from draftmark.cli.output import print_json, result_console
from draftmark.engines.sglang.engine import SGLang
from draftmark.errors import BadInputError, RefusedError, UsageError
from draftmark.model import Arm, Fit, Gpu
from draftmark.ports import Engine, FitScene
from draftmark.service.local import LocalHost
from draftmark.tune.fitting import fit_document
from draftmark.tune.plan import parse_arms

_DEPTHS = "0..8"
_PLAIN = ("python3", "-m", "sglang.launch_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is asked about.

    Attributes:
        command: Its command line; empty to take the flags from the log.
        scene: Without the log and the card that the user names.
        live: It may run, so that there could be a log of how it started.
    """

    shown: str
    engine: Engine
    command: tuple[str, ...]
    scene: FitScene
    live: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "service", metavar="SERVICE|MODEL_DIR", help='unit:NAME, cmd:"…", or a directory that holds config.json'
    )
    hosts.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument(
        "--depth",
        metavar="LIST",
        help=f"depths, such as 0..10 or off,2,4; adaptive: SGLang's own choice while it serves (default {_DEPTHS})",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="log of a start of this service, packed or not, - for stdin: calibrates (default: a unit's journal)",
    )
    add_gpu(parser)
    parser.add_argument("--engine", metavar="NAME[==VERSION]", help="sglang==0.5.17 (default: as the service says)")
    parser.add_argument("--engine-version", metavar="VERSION", help="the version alone, such as 0.5.17")
    parser.add_argument("--method", metavar="NAME", help="speculation method, when the command line names none")
    parser.add_argument("--tp", type=options.positive, metavar="N", help="as the engine's --tp-size")
    parser.add_argument(
        "--flags",
        metavar="WORDS",
        help='further flags of the engine, in one word: --flags "--mem-fraction-static 0.8 --tp-size 2"',
    )


def run(args: argparse.Namespace) -> int:
    """Tell what fits."""
    version = _version(args)
    subject = _model(args) if _is_path(args.service) else _named(args)
    if args.flags:
        subject.engine.check(subject.command)
    gpus = _gpus(args, subject.scene)
    log = None if args.log is None else boot_log_of(args.log)

    def scene() -> FitScene:
        known = replace(subject.scene, gpus=lambda: gpus, version=version or subject.scene.version)
        return known if log is None else replace(known, log=log.lines(), log_name=log.name)

    found, without = _found(subject, args.depth, scene)
    if found is None:
        raise _not_known(subject.engine.name)
    document = {
        "schema": "draftmark.fit/1",
        "service": subject.shown,
        "gpus": [{"name": gpu.name, "total_mib": gpu.total_mib} for gpu in gpus],
        **fit_document(found),
    }
    document["assumptions"][:0] = (*_remarks(subject, log), *without)
    if args.json:
        print_json(document)
    else:
        from draftmark.report.fit_table import print_fit

        print_fit(document, result_console())
    return 0


def _is_path(text: str) -> bool:
    """Whether a model's directory, or its config.json, is meant, and no service."""
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError):  # longer than any name, or a home that there is none of
        return False


def _named(args: argparse.Namespace) -> _Subject:
    """A service by its reference; a path that leads nowhere is told as that.

    Raises:
        UsageError: There is no such service, folder or file.
    """
    text = args.service
    if ":" not in text.partition("/")[0] and ("/" in text or text.endswith(".json")):
        raise UsageError(
            f"there is no folder or file {text[:200]}",
            next_step='name the directory that holds config.json, or a service: unit:NAME, cmd:"…"',
        )
    try:
        return _service(args)
    except UsageError as error:
        if ":" not in text:
            error.evidence = (*error.evidence, "no folder or file of that name is here either")
            error.next_step = 'name the directory that holds config.json, or a service: unit:NAME, cmd:"…"'
        raise


def _not_known(engine: str) -> RefusedError:
    return RefusedError(
        f"the memory that {engine} will take is not known beforehand",
        next_step="draftmark fit knows SGLang; start the service to see",
    )


def _found(
    subject: _Subject, depths: str | None, scene: Callable[[], FitScene]
) -> tuple[Fit | None, tuple[str, ...]]:
    """The verdict; where nothing drafts, that of `off` alone, and why."""
    arms = _arms(depths or _DEPTHS, subject)
    try:
        return subject.engine.fit(subject.command, arms, scene()), ()
    except UsageError as error:
        if isinstance(error, BadInputError) or (depths is not None and all(arm.depth for arm in arms)):
            raise
        try:
            alone = subject.engine.fit(subject.command, (Arm(0),), scene())
        except UsageError:
            raise error from None
        return alone, (f"only `off` is told: {error.what}; {error.next_step}",)


def _arms(text: str, subject: _Subject) -> tuple[Arm, ...]:
    return parse_arms(text, lambda: subject.engine.adaptive(subject.command))


def _remarks(subject: _Subject, log: BootLog | None) -> tuple[str, ...]:
    """What there is to say of the log, or of there being none."""
    if log is not None:
        return log.remarks
    return (NOT_SEEN,) if subject.live and subject.scene.log is None else ()


def _gpus(args: argparse.Namespace, scene: FitScene) -> tuple[Gpu, ...]:
    """The card that the user names; with a log file none is needed; else those of the service's host."""
    return named(args) or (() if args.log is not None else scene.gpus())


def _version(args: argparse.Namespace) -> str | None:
    name, _, version = (args.engine or "sglang").partition("==")
    if name.lower() != "sglang":
        raise _not_known(name[:40])
    if version and args.engine_version and version != args.engine_version:
        raise UsageError("--engine and --engine-version name two versions", next_step="leave one of them out")
    return args.engine_version or version or None


def _extra(args: argparse.Namespace) -> tuple[str, ...]:
    try:
        words = shlex.split(args.flags or "")
    except ValueError as error:
        raise UsageError(f"--flags: {error}", next_step="quote it as for a shell") from None
    return (*words, *(("--tp-size", str(args.tp)) if args.tp else ()))


def _model(args: argparse.Namespace) -> _Subject:
    """A model without a service: flags from the options, or those of the log."""
    path = Path(args.service).expanduser()
    folder = str(path.parent if path.is_file() else path)
    host, extra = LocalHost(), _extra(args)
    return _Subject(
        shown=args.service,
        engine=SGLang(method=args.method, version=_version(args)),
        command=() if args.log is not None and not extra else (*_PLAIN, "--model-path", folder, *extra),
        scene=FitScene(
            read=lambda name: host.read(name, CONFIG_BYTES), gpus=lambda: gpus_of(host), model_dir=folder
        ),
    )


def _service(args: argparse.Namespace) -> _Subject:
    """A service with a command line."""
    from draftmark.cli import compose

    if args.service.startswith("embedded:"):
        raise _not_known("llama.cpp")
    target = compose.target(args)
    return _Subject(
        shown=target.shown,
        engine=target.engine,
        command=(*target.command, *_extra(args)),
        scene=scene_of(target, with_log=args.log is None),
        live=told_by_log(target),
    )
