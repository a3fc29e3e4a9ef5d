"""`draftmark fit`: what each depth leaves of the GPU's memory. Starts nothing."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from draftmark.cli import hosts, options, services
from draftmark.cli.gpus import gpus_of
from draftmark.cli.output import print_json, result_console
from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.memory.cards import gpu_of
from draftmark.errors import BadInputError, RefusedError, UsageError
from draftmark.model import Arm, Gpu, ServiceKind
from draftmark.ports import Engine, FitScene, Host
from draftmark.run.redact import Redactor
from draftmark.service.local import LocalHost
from draftmark.service.reference import parse_cmd, parse_reference
from draftmark.tune.fitting import fit_document
from draftmark.tune.plan import parse_depths

_DEPTHS = "0..8"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is asked about.

    Attributes:
        command: Its command line; empty to take the flags from the log.
        read: The beginning of a file of its host.
        gpus: Of its host.
    """

    shown: str
    engine: Engine
    command: tuple[str, ...]
    environment: dict[str, str]
    read: Callable[[str], bytes]
    gpus: Callable[[], tuple[Gpu, ...]]
    model_dir: str | None = None
    version: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "service", metavar="SERVICE|MODEL_DIR", help='unit:NAME, cmd:"…", or a directory that holds config.json'
    )
    hosts.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--depth", metavar="LIST", help=f"depths, such as 0..10 or off,2,4 (default {_DEPTHS})")
    parser.add_argument("--log", type=Path, metavar="FILE", help="log of a start of this service: calibrates")
    parser.add_argument(
        "--gpu",
        "--gpu-memory",
        metavar="CARD",
        help="h200, 80GiB, 143771MiB: one card of the service (default: what nvidia-smi says on its host)",
    )
    parser.add_argument(
        "--engine", metavar="NAME[==VERSION]", help="sglang==0.5.17 (default: what the service says)"
    )
    parser.add_argument("--engine-version", metavar="VERSION", help="the version alone, such as 0.5.17")
    parser.add_argument("--method", metavar="NAME", help="speculation method, when the command line names none")
    parser.add_argument("--tp", type=options.positive, metavar="N", help="as the engine's --tp-size")
    parser.add_argument("--flags", metavar="WORDS", help="further flags of the engine, in one word")


def run(args: argparse.Namespace) -> int:
    """Tell what fits."""
    subject = _subject(args)
    arms = tuple(Arm(depth) for depth in parse_depths(args.depth or _DEPTHS))
    gpus = (gpu_of(args.gpu),) if args.gpu is not None else subject.gpus() if args.log is None else ()
    scene = FitScene(
        read=subject.read,
        gpus=gpus,
        log=None if args.log is None else _lines(args.log),
        log_name=None if args.log is None else str(args.log),
        version=subject.version,
        model_dir=subject.model_dir,
        environment=subject.environment,
    )
    found = subject.engine.fit(subject.command, arms, scene)
    if found is None:
        raise RefusedError(
            f"the memory that {subject.engine.name} will take is not known beforehand",
            next_step="draftmark fit knows SGLang; start the service to see",
        )
    document = {
        "schema": "draftmark.fit/1",
        "service": subject.shown,
        "gpus": [{"name": gpu.name, "total_mib": gpu.total_mib} for gpu in gpus],
        **fit_document(found),
    }
    if args.json:
        print_json(document)
    else:
        from draftmark.report.fit_table import print_fit

        print_fit(document, result_console())
    return 0


def _subject(args: argparse.Namespace) -> _Subject:
    version = _version(args)
    engine = SGLang(method=args.method, version=version)
    if Path(args.service).expanduser().exists():
        return _model(args, engine, version)
    if services.resolve(args) is None:
        ref = parse_reference(args.service)
        if ref.kind is ServiceKind.CMD:
            return _command(args, ref.target, engine, version)
        if ref.kind is not ServiceKind.UNIT:
            raise UsageError(
                f"{ref.kind.value}: services have no command line to read",
                evidence=(str(ref),),
                next_step='name unit:NAME, cmd:"…", or a directory that holds config.json',
            )
    return _unit(args, engine, version)


def _version(args: argparse.Namespace) -> str | None:
    name, _, version = (args.engine or "sglang").partition("==")
    if name != "sglang":
        raise UsageError(
            f"--engine {name[:40]}: only SGLang's memory is known", next_step="--engine sglang==0.5.17"
        )
    if version and args.engine_version and version != args.engine_version:
        raise UsageError("--engine and --engine-version name two versions", next_step="leave one of them out")
    return args.engine_version or version or None


def _extra(args: argparse.Namespace) -> tuple[str, ...]:
    try:
        words = shlex.split(args.flags or "")
    except ValueError as error:
        raise UsageError(f"--flags: {error}", next_step="quote it as for a shell") from None
    return (*words, *(("--tp-size", str(args.tp)) if args.tp else ()))


def _model(args: argparse.Namespace, engine: Engine, version: str | None) -> _Subject:
    """A model without a service: flags from the options, or those of the log."""
    path = Path(args.service).expanduser()
    folder = str(path.parent if path.is_file() else path)
    host, extra = LocalHost(), _extra(args)
    plain = ("python3", "-m", "sglang.launch_server", "--model-path", folder)
    return _Subject(
        shown=args.service,
        engine=engine,
        command=() if args.log is not None and not extra else (*plain, *extra),
        environment={},
        read=lambda name: host.read(name, 4 << 20),
        gpus=lambda: gpus_of(host),
        model_dir=folder,
        version=version,
    )


def _command(args: argparse.Namespace, target: str, engine: Engine, version: str | None) -> _Subject:
    if hosts.is_remote(args):
        raise UsageError("--host is for unit: services, and cmd: runs here", next_step="leave --host out")
    spec = parse_cmd(target)
    if not engine.recognises(spec.argv):
        raise UsageError(
            "this command line does not start SGLang",
            evidence=(Redactor.of(spec.argv, spec.env).text(target),),
            next_step="draftmark fit knows SGLang only",
        )
    host = LocalHost()
    return _Subject(
        shown="cmd:" + shlex.join(Redactor.of(spec.argv, spec.env).command(spec.argv)),
        engine=engine,
        command=(*spec.argv, *_extra(args)),
        environment=dict(spec.env),
        read=lambda name: host.read(name, 4 << 20),
        gpus=lambda: gpus_of(host),
        version=version,
    )


def _unit(args: argparse.Namespace, engine: Engine, version: str | None) -> _Subject:
    from draftmark.cli.unit_target import unit_target

    named = services.resolve(args)
    members = named.members if named else (services.Member(parse_reference(args.service).target, args.host),)
    target = unit_target(args, members, engine)
    host: Host = target.first.host
    return _Subject(
        shown=target.shown,
        engine=engine,
        command=(*target.command, *_extra(args)),
        environment=dict(target.first.unit.environment),
        read=lambda name: host.read(name, 4 << 20),
        gpus=lambda: gpus_of(host),
        version=version,
    )


def _lines(path: Path) -> Iterable[str]:
    """Lines of the log, one after the other: it may be large."""
    try:
        file = path.open(encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise BadInputError(
            f"the log cannot be read: {error.strerror or error}", evidence=(str(path),), next_step="check --log"
        ) from None
    with file:
        yield from file
