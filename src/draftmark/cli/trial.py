"""The verb, not meant for people, by which a Draftmark elsewhere runs a trial on this node of a cluster.

One JSON line on stdin says what; lines of JSON on stdout say how it goes; the trial's files are in DIR at the end.
When stdin closes before that, whoever asked is gone: the server is stopped, and DIR removed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from draftmark import __version__
from draftmark.cli import compose
from draftmark.cli.engines import version_of
from draftmark.cli.fitting import predicted
from draftmark.cli.gpus import named
from draftmark.cli.target import Target
from draftmark.errors import BadInputError, DraftmarkError, Interrupted
from draftmark.load.client import run_closed_loop
from draftmark.model import Trial
from draftmark.run.directory import TrialWriter
from draftmark.run.records import Slot, decode, encode_line
from draftmark.run.redact import text as hidden
from draftmark.service.host import SystemClock, has_gpu, local_facts
from draftmark.service.local import LocalHost
from draftmark.tune.job import Failed, Job, Look, Service, Sight, Word
from draftmark.tune.trial import TrialRunner

_EVERY_S = 0.5  # between two lines of progress
_FIND_S = 60.0  # a cold interpreter on a network disk
_HAS_MODULE = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="for the trial's files; it is removed"
    )


def run(args: argparse.Namespace) -> int:
    """Answer a look, or run a trial."""
    line = sys.stdin.buffer.readline()
    try:
        asked = decode(line, Job) if args.directory else decode(line, Look)
    except msgspec.DecodeError as error:
        raise BadInputError(
            "no trial to be run", evidence=(str(error),), next_step="draftmark tune --help"
        ) from None
    try:
        if isinstance(asked, Look):
            _say(Word(sight=_look(asked)))
        else:
            _watch_stdin()
            _trial(asked, args.directory)
    except Interrupted:
        shutil.rmtree(args.directory, ignore_errors=True)
        raise
    except DraftmarkError as error:
        lines = tuple(map(hidden, error.evidence))
        _say(Word(failed=Failed(what=hidden(error.what), evidence=lines, next_step=hidden(error.next_step))))
        return error.exit_status
    return 0


def _say(word: Word) -> None:
    with suppress(BrokenPipeError):  # whoever asked is gone: stdin says so, and the server is to be stopped first
        left = encode_line(word)
        while left:
            left = left[os.write(1, left) :]


def _watch_stdin() -> None:
    """The end of stdin is the end of us: as if somebody had pressed Ctrl-C."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # also where it is over: whoever asked has read the files by now

    threading.Thread(target=wait, daemon=True).start()


def _target(service: Service) -> Target:
    if service.cwd is not None and Path(service.cwd).is_dir():
        os.chdir(service.cwd)
    given = argparse.Namespace(
        service=service.reference, engine=service.engine, method=service.method, host=None, cluster=None
    )
    return compose.moved(compose.target(given), service.port_step)


def _look(asked: Look) -> Sight:
    facts = local_facts()
    try:
        target = _target(asked.service)
    except DraftmarkError as error:
        missing = hidden(" ".join((error.what, *error.evidence[:2])))
        return Sight(draftmark=__version__, missing=missing, facts=facts)
    notes: list[str] = []
    bound = target.engine.cpu_bound(target.command)
    return Sight(
        draftmark=__version__,
        engine_version=version_of(target.engine, target.command) or target.version,
        missing=_missing(target.command),
        fit=predicted(target, asked.arms, notes, named(asked)),
        notes=tuple(notes),
        cpu_bound=bool(bound or (bound is None and not has_gpu())),
        facts=facts,
    )


def _missing(command: tuple[str, ...]) -> str | None:
    """What of a command line is not here: its program, or the Python module that it runs."""
    program = shutil.which(command[0])
    if program is None:
        return f"there is no program {command[0]} there"
    if len(command) > 2 and command[1] == "-m":
        module = command[2].partition(".")[0]
        asked = (program, "-c", _HAS_MODULE, module)
        if LocalHost().run(asked, timeout_s=_FIND_S).status == 1:
            return f"{shlex.join(command[:1])} has no module {module} there"
    return None


class _Teller:
    """tune.trial.Observer that says everything aloud, progress now and then."""

    def __init__(self) -> None:
        self._last = 0.0

    def trial_begins(self, slot: Slot) -> None:
        """Whoever asked knows."""

    def phase(self, slot: Slot, what: str, limit_s: float | None) -> None:
        """A new thing to wait for."""
        del slot
        _say(Word(phase=(what, limit_s)))

    def progress(self, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far the measurement is."""
        now = time.monotonic()
        if now - self._last >= _EVERY_S:
            self._last = now
            _say(Word(progress=(done, total, tok_s, errors)))

    def trial_ends(self, trial: Trial) -> None:
        """Its record says it."""


def _trial(job: Job, directory: Path) -> None:
    clock, teller = SystemClock(), _Teller()
    target = _target(job.service)

    def act(what: str, _number: int, detail: dict[str, object]) -> None:
        _say(Word(act=(what, detail)))

    with target.rig(clock) as rig:
        runner = TrialRunner(
            engine=rig.engine,
            supervisor=rig.supervisor,
            drain=rig.drain(clock, lambda *_: None),
            load=partial(run_closed_loop, api=job.api, max_seconds=None),
            clock=clock,
            limits=job.limits,
            axes=job.axes,
            observer=teller,
            act=act,
            port_holder=rig.port_holder,
            host=rig.host,
            redactor=target.redactor,
            post_mortem=rig.post_mortem,
            node=job.node,
        )
        writer = TrialWriter(directory, directory)
        runner.run(job.slot, writer, baseline_start_s=job.baseline_start_s)
