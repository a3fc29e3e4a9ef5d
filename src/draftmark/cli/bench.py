"""`draftmark bench`: load a service and measure it. Chooses nothing, changes nothing."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from typing import Any

from draftmark import __version__
from draftmark.cli import load_options, options, services
from draftmark.cli.bench_outputs import Outputs, export
from draftmark.cli.bench_run import Bench, Options
from draftmark.cli.bench_server import Server, serving
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.errors import DraftmarkError, FailedError, Interrupted, UsageError
from draftmark.load.journal import Head, JournalWriter, Measured, read_journal
from draftmark.load.result import derive, disturbed
from draftmark.load.slo import Slo, parse_slo
from draftmark.model import ServiceKind

_MOST_WORKERS, _MOST_REPEATS = 64, 100
_TOLD = (
    "workload", "prompts", "requests", "concurrency", "rate", "arrival", "burstiness", "ramp_seconds", "trace",
    "trace_speed", "think", "multi_turn", "output_tokens", "shared_prefix", "random_tokens", "seed", "max_tokens",
    "max_seconds", "repeat", "workers", "no_stream",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.service(parser, optional=True)
    options.workload(parser)
    load_options.add_arguments(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--model", metavar="NAME", help="model name to ask for (default: the first that it serves)")
    options.header(group)
    group.add_argument("--start-timeout", type=options.positive_number, default=600.0, metavar="S")
    options.measuring(parser, most_workers=_MOST_WORKERS, most_repeats=_MOST_REPEATS)
    options.bench_outputs(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, and say with the exit status whether anything was measured."""
    wanted = Outputs(html=args.html, exports=tuple(map(export, args.export)))
    slo = _slo(args)
    if args.source is not None:
        return _again(args, wanted, slo)
    if args.service is None:
        raise UsageError("no service is named", next_step="draftmark bench url:http://127.0.0.1:8000")
    reference = services.reference(args)
    embedded = reference is not None and reference.kind is ServiceKind.EMBEDDED
    asked = load_options.asked(args, embedded=embedded)
    axes = load_options.axes(asked, args, embedded=embedded)
    wanted.check([axis.key for axis in axes] * args.repeat)
    headers = options.headers(args)
    interrupted: Interrupted | None = None
    head, measured = Head(), list[Measured]()
    with nullcontext() if args.output is None else closing(JournalWriter(args.output)) as journal:
        try:
            with serving(args, headers) as server:
                head = _head(args, server, slo)
                if journal is not None:
                    journal.begin(head)
                Bench(
                    server=server,
                    asked=asked,
                    axes=axes,
                    options=_options(args),
                    console=progress_console(),
                    journal=journal,
                    measured=measured,
                ).go()
        except Interrupted as stop:
            if not measured:
                raise
            interrupted = stop
        try:
            document = _finish(args, wanted, head, measured)
        except DraftmarkError:  # a full disk stops the page, too, and that error sends its reader to this file
            if journal is None or journal.fault is None:
                raise
        if journal is not None and journal.fault is not None:
            raise journal.error()
    if interrupted is not None:
        raise interrupted
    return _status(document)


def _again(args: argparse.Namespace, wanted: Outputs, slo: Slo | None) -> int:
    """The same document from the requests that were kept, under another service level if one is given."""
    if args.service is not None or args.output is not None:
        raise UsageError(
            "--from measures nothing, it reads what was measured",
            next_step="leave the service and --output out",
        )
    head, measured = read_journal(args.source)
    if slo is not None:
        head = dataclasses.replace(head, limits_ms=slo.limits_ms)
    wanted.check([f"{one.ending.workload}@{one.ending.concurrency}" for one in measured])
    document = _finish(args, wanted, head, measured)
    return _status(document)


def _finish(args: argparse.Namespace, wanted: Outputs, head: Head, measured: Sequence[Measured]) -> dict[str, Any]:
    """Print first: what cannot be written afterwards is then at least seen."""
    document = derive(head, measured)
    if args.json:
        print_json(document)
    else:
        from draftmark.report.terminal import print_bench

        print_bench(document, result_console())
    for path in wanted.write(head, measured, document):
        progress_console().print(f"written: {path}", markup=False, soft_wrap=True)
    return document


def _slo(args: argparse.Namespace) -> Slo | None:
    """The service level asked for, in either spelling.

    Raises:
        UsageError: It cannot be judged.
    """
    if args.slo is not None and args.goodput is not None:
        raise UsageError("--slo and --goodput are two names of one thing", next_step="leave one of them out")
    words = [args.slo] if args.slo is not None else args.goodput
    if words is None:
        return None
    slo = parse_slo(words)
    if args.no_stream and slo.streamed:
        raise UsageError(
            "without streaming nobody knows when the first token came",
            evidence=(" ".join(words), "--no-stream"),
            next_step="leave --no-stream out, or give a limit for e2e alone",
        )
    return slo


def _options(args: argparse.Namespace) -> Options:
    return Options(
        requests=args.requests,
        repeat=args.repeat,
        max_seconds=args.max_seconds,
        request_timeout_s=args.request_timeout,
        stream=not args.no_stream,
        workers=args.workers,
    )


def _head(args: argparse.Namespace, server: Server, slo: Slo | None) -> Head:
    told = {name: getattr(args, name) for name in _TOLD}
    return Head(
        draftmark=__version__,
        service=server.shown,
        engine=server.engine,
        api=server.api,
        model=server.model,
        started_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        limits_ms=slo.limits_ms if slo is not None else {},
        settings={name: str(value) for name, value in told.items() if value not in (None, False)},
    )


def _status(document: dict[str, Any]) -> int:
    """Whether anything was measured, and undisturbed.

    Raises:
        FailedError: Not one request completed.
    """
    levels = document["levels"]
    if not any(level["requests"] for level in levels):
        kinds = sorted({kind for level in levels for kind in level["errors"]})
        cut = sum(level["cut"] for level in levels)
        without = f"none, but {cut} were broken off under way" if cut else "none, none was sent"
        raise FailedError(
            "no request completed",
            evidence=(f"errors: {', '.join(kinds) or without}",),
            next_step="give them longer: a higher --max-seconds, or a lower --max-tokens"
            if cut and not kinds
            else "see whether the server serves at all: draftmark inspect SERVICE",
        )
    return 40 if disturbed(document) else 0
