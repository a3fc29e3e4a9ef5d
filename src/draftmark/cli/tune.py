"""`draftmark tune`: the loop."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from draftmark.cli import (
    again,
    cluster,
    cluster_run,
    compose,
    hosts,
    knobs,
    load_options,
    load_sizes,
    options,
    surface,
)
from draftmark.cli.inconclusive import next_step
from draftmark.cli.output import progress_console
from draftmark.cli.planning import Planned, planned
from draftmark.cli.progress import RunProgress
from draftmark.cli.reporting import rederive, show, write_reports
from draftmark.cli.searching import learned_from
from draftmark.errors import BadInputError, DraftmarkError, Interrupted, RefusedError, StorageError, UsageError
from draftmark.load.client import run_closed_loop
from draftmark.model import Arm, Trial
from draftmark.run.directory import RunDirectory
from draftmark.run.lock import exclusive
from draftmark.run.records import FORECAST, RunInfo
from draftmark.service.host import SystemClock, listener_at
from draftmark.tune.knobs.sharing import KnobStudy
from draftmark.tune.measuring import Limits
from draftmark.tune.runner import Journal, Sweep
from draftmark.tune.startup import refuse_taken
from draftmark.tune.trial import TrialRunner

_DEFAULT_SERVICE = "embedded:"
_START_S = 600.0
# What a run fixes at its beginning; giving it again with --resume would be ignored.
_FIXED = (
    "depth",
    "knob",
    "knob_restarts",
    "search",
    "rounds",
    "concurrency",
    "workload",
    "prompts",
    "seed",
    "requests",
    "max_tokens",
    "max_foreign_cpu",
    "run",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.service(parser, default=_DEFAULT_SERVICE)
    options.sweep(parser)
    options.workload(parser)
    load_options.add_arguments(parser, tuning=True)
    group = parser.add_argument_group("run directory")
    group.add_argument("--run", type=Path, metavar="DIR", help="where to keep the run (default draftmark-runs/…)")
    group.add_argument("--resume", type=Path, metavar="DIR", help="go on with a run; finished trials stay")
    group.add_argument(
        "--keep",
        action="store_true",
        help="apply the choice: one drop-in of the unit; for cmd: and embedded: the command line is printed",
    )
    parser.add_argument(
        "--surface",
        type=Path,
        metavar="FILE",
        help="search recorded figures and start no server: depths with their tok/s, as JSON (docs/search.md)",
    )
    options.live(parser)
    cluster.add_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Tune a service."""
    if args.surface is not None:
        _surface_alone(args)
        return surface.run(args.surface, as_json=args.json)
    before = RunDirectory.open(args.resume) if args.resume is not None else None
    if before is not None:
        _same_cluster(args, before)
    with cluster.opened(args) as field:
        work = planned(args, field) if before is None else _resumed(args, before.info)
        knobs.needs_optuna(work.info)
        path = args.resume or args.run or compose.default_run_directory(work.info.started_at, work.info.service)
        with _alone(work, path):
            directory = before or RunDirectory.create(path, work.info)
            try:
                kept = _carried_out(args, work, directory, field)
            except (RefusedError, UsageError, BadInputError):
                if before is None:
                    directory.discard_if_empty()
                raise
    result = rederive(directory)
    write_reports(directory, result)
    with suppress(BrokenPipeError):  # whoever read it has seen enough; the run has its own status
        show(directory, result, as_json=args.json, to_run="\n".join(kept) or _to_run(work, result, args))
    for line in kept if args.json else ():
        progress_console().print(line, markup=False, soft_wrap=True)
    if result["exit_status"] == 40:
        progress_console().print(next_step(result, str(path)), markup=False, soft_wrap=True)
    return 0 if args.keep and result["exit_status"] == 10 else int(result["exit_status"])


def _surface_alone(args: argparse.Namespace) -> None:
    """What concerns a server means nothing where none is started; the file itself has baseline and margin.

    Raises:
        UsageError: Such an option, or a service, was given as well.
    """
    names = (*_FIXED, "resume", "host", "cluster", "study")
    given = [
        f"--{name.replace('_', '-')}" for name in names if getattr(args, name) not in (None, FORECAST)
    ]  # a forecast is what it is
    if args.service != _DEFAULT_SERVICE:
        given.insert(0, args.service)
    if given:
        raise UsageError(
            "--surface starts no server: its file has all that is searched",
            evidence=(f"given with it: {', '.join(given)}",),
            next_step="leave that out; depths, concurrency, objective and tie_margin are keys of the file: "
            "docs/search.md",
        )


def _carried_out(
    args: argparse.Namespace, work: Planned, directory: RunDirectory, field: cluster.Field | None
) -> Sequence[str]:
    if field is None:
        study = knobs.study_of(args, work.info, directory.path)
        return sweep(work, directory, keep=args.keep, study=study)
    cluster_run.sweep(work, directory, field)
    return ()


@contextmanager
def _alone(work: Planned, path: Path) -> Iterator[None]:
    """Nothing else starts or serves it. Before there is a run directory: a refusal leaves nothing behind."""
    if work.target.lock is None:
        yield
        return
    own = work.target.embedded or work.info.cluster is not None  # it listens where nobody else does
    kind = "cluster" if work.info.cluster is not None else "embedded"
    holder = f"{kind}:{path.resolve()}" if own else work.target.lock
    with exclusive(holder, about=f"draftmark tune, run directory {path.resolve()}"):
        if work.info.cluster is not None:
            yield
            return
        base_url = work.target.engine.base_url(work.target.command)
        refuse_taken(base_url, listener_at(base_url))
        yield


def sweep(
    work: Planned, directory: RunDirectory, *, keep: bool = False, study: KnobStudy | None = None
) -> Sequence[str]:
    """Run what is left of a run, showing how it goes; nothing is left running afterwards.

    Returns:
        Where what was kept lies, and how to undo it; empty where nothing was.
    """
    clock = SystemClock()
    journal = Journal(directory, clock)
    settings = work.info.settings
    start_s = settings["start_timeout_s"]
    finished = directory.finished()
    with (
        RunProgress(progress_console(), total=len(work.info.schedule) or None, done=len(finished)) as observer,
        hosts.listening(lambda what: observer.waits(what, None)),
        work.target.rig(clock, observer.waits) as rig,
    ):
        loop = Sweep(
            directory=directory,
            ends=rig.ends(clock, start_s or _START_S, observer.waits),
            trials=TrialRunner(
                engine=rig.engine,
                supervisor=rig.supervisor,
                drain=rig.drain(clock, observer.waits),
                load=rig.load or partial(run_closed_loop, api=settings["api"], max_seconds=None),
                clock=clock,
                limits=Limits(
                    start_timeout_s=start_s or _START_S,
                    as_baseline_starts=start_s is None,
                    request_timeout_s=settings["request_timeout_s"],
                    max_foreign_cores=settings["max_foreign_cores"],
                ),
                axes=work.axes,
                observer=observer,
                act=journal.write,
                port_holder=rig.port_holder,
                host=rig.host,
                watch=rig.watch(clock),
                reach=rig.reach,
                redactor=work.target.redactor,
                post_mortem=rig.post_mortem,
            ),
            journal=journal,
            after=partial(_after, directory),
            keeps=keep and work.target.may_run,
            to_keep=partial(_to_keep, work, directory) if keep and work.target.may_run else _nothing,
            live=work.target.may_run and work.info.search == FORECAST,
            learn=partial(learned_from, work.target, work.info),
            vet=knobs.Vetting(work.target, work.info.baseline, directory).refusal if work.info.knobs else None,
            study=study,
            tell=observer.note,
        )
        try:
            loop.run()
        except Interrupted as stop:
            with suppress(StorageError):
                journal.write("interrupted", detail={"signal": stop.signum})
                rederive(directory)
            observer.note(f"go on with: draftmark tune --resume {shlex.quote(str(directory.path))}")
            raise
        except DraftmarkError:
            if directory.finished():
                with suppress(StorageError):
                    rederive(directory)  # what ended it may bear on the verdict
            raise
        return rig.kept()


def _after(directory: RunDirectory, trial: Trial) -> None:
    """After each trial the result of what is known so far is on disk."""
    rederive(directory, only=trial.number)


def _nothing() -> Arm | None:
    return None


def _to_keep(work: Planned, directory: RunDirectory) -> Arm | None:
    """The arm that a finished run recommends over what the service has."""
    result = rederive(directory)
    name = result["choice"]["recommended"] if result["exit_status"] == 10 else None
    return next((arm for arm in work.info.arms if arm.name == name), None)


def _same_cluster(args: argparse.Namespace, before: RunDirectory) -> None:
    """A run over a cluster goes on over one, whatever its address is now; any other on its host."""
    if before.info.cluster is None and args.cluster is not None:
        raise UsageError(
            "this run was begun on one host, whose figures are not those of other nodes",
            evidence=(str(before.path),),
            next_step="leave --cluster out, or begin a new run",
        )
    args.cluster = args.cluster or before.info.cluster
    if before.info.cluster is not None:
        _as_begun(args, before.info)  # the nodes are asked before the rest is read


def _as_begun(args: argparse.Namespace, info: RunInfo) -> None:
    """The service and what is known of it, as the run has them.

    Raises:
        UsageError: They hold a secret, which the run does not.
    """
    if info.service.startswith("embedded:"):
        args.service = "embedded:"
    elif args.service == "embedded:":
        if info.redacted:
            raise UsageError(
                "the run's command line held a secret, which was not written down",
                evidence=(info.service,),
                next_step="give the service again: draftmark tune 'cmd:\"…\"' --resume DIR",
            )
        args.service = info.service
    args.method, args.engine = info.settings["method"], info.settings["engine"]
    args.api = info.settings["api"]


def _resumed(args: argparse.Namespace, info: RunInfo) -> Planned:
    """The run's own plan again; only the command line is found anew."""
    given = [f"--{name.replace('_', '-')}" for name in _FIXED if getattr(args, name) is not None]
    if given:
        raise UsageError(
            "a resumed run keeps the settings that it began with",
            evidence=(f"given with --resume: {', '.join(given)}",),
            next_step="leave them out, or begin a new run",
        )
    _as_begun(args, info)
    if info.cwd is not None and info.cwd != os.getcwd():  # noqa: PTH109 - as the user sees it
        raise UsageError(
            "the run was begun in another directory, where its relative paths mean something",
            evidence=(f"begun in {info.cwd}",),
            next_step=f"cd {shlex.quote(info.cwd)}, and give RUN as seen from there",
        )
    target = compose.target(args)
    if not target.embedded and target.shown != info.service:
        raise UsageError(
            "this is not the service that the run was made with",
            evidence=(f"run:   {info.service}", f"given: {target.shown}"),
            next_step="resume without naming a service, or begin a new run",
        )
    if info.service.startswith("unit:") and target.redactor.command(target.command) != info.command:
        raise UsageError(
            "the unit's command line is another than when the run began",
            evidence=(
                f"then: {shlex.join(info.command)}",
                f"now:  {shlex.join(target.redactor.command(target.command))}",
            ),
            next_step="begin a new run",
        )
    axes = load_sizes.axes(info.workloads, info.concurrency, info.settings["requests"], embedded=target.embedded)
    return Planned(target=target, info=info, axes=axes)


def _to_run(work: Planned, result: dict[str, Any], args: argparse.Namespace) -> str:
    """What is not kept is shown, ready to use. Nothing where nothing is settled."""
    if result["kept"]:
        return ""
    name = result["choice"]["recommended"]
    arm = next((a for a in work.info.arms if a.name == name), None)
    if arm is None or not (args.keep or result["exit_status"] == 10):
        return ""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = again.options(args, parser, work.info if args.resume is not None else None)
    command = work.target.engine.with_arm(work.target.command, arm)
    return f"to run {arm.label}:\n  {work.target.to_run(command, given)}"
