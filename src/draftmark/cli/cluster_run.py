"""Carries a run out over the nodes of a cluster."""

from __future__ import annotations

import shlex
from functools import partial

from draftmark.cli.cluster import Field, FieldNodes, keep_log
from draftmark.cli.cluster_progress import CrowdProgress
from draftmark.cli.output import progress_console
from draftmark.cli.planning import Planned
from draftmark.cli.reporting import rederive
from draftmark.cli.searching import learned_from
from draftmark.errors import HostError, Interrupted
from draftmark.model import Trial
from draftmark.run.directory import RunDirectory
from draftmark.service.host import SystemClock
from draftmark.tune.lanes import makespan
from draftmark.tune.parallel import ParallelSweep
from draftmark.tune.runner import Journal


def sweep(work: Planned, directory: RunDirectory, found: Field) -> None:
    """Run what is left of a run, showing how it goes; nothing is left running on any node afterwards."""
    journal = Journal(directory, SystemClock())
    total, _, _ = makespan(work.info, len(found.nodes))
    resume = f"go on with: draftmark tune --resume {shlex.quote(str(directory.path))}"
    done = len(directory.finished())
    console = progress_console()
    with CrowdProgress(console, found.names, total=max(total, done), done=done) as observer:
        for note in found.notes:
            observer.note(f"note: {note}")
        loop = ParallelSweep(
            directory=directory,
            nodes=FieldNodes(found),
            job=partial(found.job, work.info, work.axes),
            journal=journal,
            observer=observer,
            after=partial(_after, directory),
            learn=partial(learned_from, work.target, work.info),
            tell=observer.note,
        )
        try:
            loop.run()
        except Interrupted as stop:
            journal.write("interrupted", detail={"signal": stop.signum})
            rederive(directory)
            observer.note(resume)
            raise
        except HostError as error:
            error.next_step = f"ray status; what was measured is kept, {resume}"
            raise
        finally:
            keep_log(found, directory.path)


def _after(directory: RunDirectory, trial: Trial) -> None:
    """After each trial the result of what is known so far is on disk."""
    rederive(directory, only=trial.number)
