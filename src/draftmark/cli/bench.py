"""`draftmark bench`: load a service and measure it. Chooses nothing, changes nothing."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import msgspec

from draftmark import __version__
from draftmark.cli import compose, options, services
from draftmark.cli.engines import api_of
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.cli.progress import LoadProgress
from draftmark.cli.target import Target
from draftmark.engines.detect import detect
from draftmark.errors import FailedError, UsageError
from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.load.measurement import measure
from draftmark.model import Counters, Health, Measurement, RequestRecord, ServiceKind
from draftmark.ports import EngineClient
from draftmark.run.directory import TrialWriter
from draftmark.service.host import SystemClock
from draftmark.tune.disturbance import load_faults
from draftmark.tune.trial import Axis, Limits, Load, counters_between


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.service(parser)
    options.workload(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--model", metavar="NAME", help="model name to ask for (default: the first that it serves)")
    options.header(group)
    group.add_argument("--max-seconds", type=options.positive_number, metavar="S", help="longest measurement")
    group.add_argument("--start-timeout", type=options.positive_number, default=600.0, metavar="S")
    group.add_argument("--output", type=Path, metavar="FILE", help="every request's record, as JSONL")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    shown: str
    base_url: str
    engine: str
    client: EngineClient | None
    headers: dict[str, str]
    extra: dict[str, object]
    api: str
    load: Load | None = None


def run(args: argparse.Namespace) -> int:
    """Measure, print, and say with the exit status whether anything was measured."""
    reference = services.reference(args)
    embedded = reference is not None and reference.kind is ServiceKind.EMBEDDED
    found = compose.workloads(args, embedded=embedded)
    levels = compose.concurrency(args, embedded=embedded)
    axes = compose.axes(
        found, levels, compose.requests_per_level(args, levels, embedded=embedded), embedded=embedded
    )
    headers = options.headers(args)
    with _record_to(args.output) as keep, _server(args, headers) as server:
        measured = [_one(args, server, axis, keep) for axis in axes]
    document = msgspec.to_builtins(_document(server, measured))
    if args.json:
        print_json(document)
    else:
        from draftmark.report.terminal import print_bench

        print_bench(document, result_console())
    if not any(m.requests for m in measured):
        kinds = sorted({kind for m in measured for kind in m.errors})
        raise FailedError(
            "no request completed",
            evidence=(f"errors: {', '.join(kinds)}",),
            next_step="see whether the server serves at all: draftmark inspect SERVICE",
        )
    return 40 if any(m.disturbed for m in measured) else 0


@contextmanager
def _server(args: argparse.Namespace, headers: dict[str, str]) -> Iterator[_Server]:
    """A running server: somebody's own at a URL, or one that is started here and stopped at the end."""
    reference = services.reference(args)
    if reference is not None and reference.kind is ServiceKind.URL:
        found = detect(reference.target, headers)
        yield _Server(
            shown=str(reference),
            base_url=reference.target.rstrip("/").removesuffix("/v1"),
            engine=found.engine,
            client=found.client,
            headers=headers,
            extra=dict(found.extra),
            api=args.api or found.api,
        )
        return
    target = compose.target(args)
    if target.may_run:
        yield _live(args, target, headers)
        return
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="draftmark-") as scratch, target.rig(clock) as rig:
        ready = rig.starter(clock, args.start_timeout).start(target.command, Path(scratch) / "server.log")
        yield _Server(
            shown=target.shown,
            base_url=ready.client.base_url,
            engine=target.engine.name,
            client=ready.client,
            headers={**target.engine.headers(target.command), **headers},
            extra=target.engine.request_extra(),
            api=api_of(args, target.engine, target.command),
        )


def _live(args: argparse.Namespace, target: Target, headers: dict[str, str]) -> _Server:
    """A service as it runs: it is only measured.

    Raises:
        FailedError: It does not run, or does not serve.
    """
    with progress_console().status(f"reaching {target.shown} …"):
        client = target.client()
        health = client.health()
    if health is not Health.READY:
        raise FailedError(
            f"{target.shown} does not serve now",
            evidence=(f"GET /health: {health.value}",),
            next_step=f"draftmark why {target.shown.partition(' ')[0]}",
        )
    return _Server(
        shown=f"{target.shown}, from {target.load_from}",
        base_url=client.base_url,
        engine=target.engine.name,
        client=client,
        headers={**target.engine.headers(target.command), **headers},
        extra=target.engine.request_extra(),
        api=api_of(args, target.engine, target.command),
        load=target.load,
    )


@contextmanager
def _record_to(path: Path | None) -> Iterator[Callable[[RequestRecord], None]]:
    if path is None:
        yield lambda _record: None
        return
    if path.exists():
        raise UsageError(f"{path} exists", next_step="name a file that is not there yet after --output")
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", next_step="make it, or name another place")
    writer = TrialWriter.at(path)
    try:
        yield writer.request
    finally:
        writer.close()


def _one(
    args: argparse.Namespace, server: _Server, axis: Axis, keep: Callable[[RequestRecord], None]
) -> Measurement:
    before = server.client.counters() if server.client else Counters()
    with LoadProgress(progress_console(), axis.key) as progress:
        load = server.load or partial(
            run_closed_loop, api=server.api, max_seconds=args.max_seconds, model=args.model
        )
        run: LoadRun = load(
            server.base_url,
            axis.workload,
            concurrency=axis.concurrency,
            repeat=axis.repeat,
            warmup=axis.warmup,
            extra=server.extra,
            request_timeout_s=args.request_timeout,
            headers=server.headers,
            first_tag=1,
            on_record=keep,
            on_progress=progress.show,
        )
    after = server.client.counters() if server.client else Counters()
    limits = Limits()
    return measure(
        run.records,
        workload=axis.workload.name,
        concurrency=axis.concurrency,
        counters=counters_between(before, after),
        client=run.client,
        assumptions=(*run.assumptions, *_cache_policy(server)),
        disturbed=load_faults(run, limits.max_error_rate, limits.max_loop_lag_ms),
    )


def _cache_policy(server: _Server) -> tuple[str, ...]:
    """The same prompts asked twice are answered faster by a server that remembers them."""
    if "cache_prompt" in server.extra:
        return ("The server's prompt cache was switched off for these requests (cache_prompt: false).",)
    if "cache_salt" in server.extra:
        return (
            "Each request had the server's prompt cache for itself alone, so that none found another's prompt.",
        )
    return ("A server with a prefix cache answers prompts faster that it has seen before, here or earlier.",)


def _document(server: _Server, measured: list[Measurement]) -> dict[str, Any]:
    """The `draftmark.bench/1` document; the keys of a single level stand at the top too."""
    levels = [_level(m) for m in measured]
    return {
        "schema": "draftmark.bench/1",
        "draftmark": __version__,
        "service": server.shown,
        "engine": server.engine,
        **(levels[0] if len(levels) == 1 else {}),
        "levels": levels,
    }


def _level(m: Measurement) -> dict[str, Any]:
    return {
        "workload": m.workload,
        "concurrency": m.concurrency,
        "requests": m.requests,
        "errors": m.errors,
        "duration_s": m.duration_s,
        "window": m.window,
        "output_tok_s": m.output_tok_s,
        "decode_tok_s": geometric_mean([value for _, value in m.decode_tok_s]) if m.decode_tok_s else None,
        "output_tokens": m.output_tokens,
        "prompt_tokens": m.prompt_tokens,
        "ttft_ms": m.ttft_ms,
        "tpot_ms": m.tpot_ms,
        "itl_ms": m.itl_ms,
        "chunk_gap_ms": m.chunk_gap_ms,
        "e2e_ms": m.e2e_ms,
        "accept_len": m.acceptance.accept_len if m.acceptance else None,
        "tokens_per_step": m.acceptance.tokens_per_step if m.acceptance else None,
        "goodput_req_s": None,
        "client": m.client,
        "assumptions": m.assumptions,
        "disturbed": m.disturbed,
    }
