"""The post-mortem of a trial's server: its log, how it ended, and, where that leaves a doubt, the kernel's log.

A `ports.PostMortem` for servers that Draftmark itself supervises, on this host.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from draftmark.cli import compose_why
from draftmark.cli.kernel_window import KernelWindow
from draftmark.ports import Failure, Host

if TYPE_CHECKING:
    from draftmark.postmortem.model import Source, Verdict

_CHUNK = 1 << 20
_EXIT = "exit status of the server"
_REFUSED = "start of the server"
_NOT_NEEDED = "not read: the server's own log says why"
_KERNEL_COMMAND = "sudo journalctl -k --since -1d"
_SUPERVISORS_OWN = frozenset({"unit journal", "unit properties"})
_SIGNALLED = 128


class TrialPostMortem:
    """ports.PostMortem."""

    def __init__(self, host: Host) -> None:
        self._kernel = KernelWindow(host)

    def watch(self) -> None:
        """Remember how far the kernel's log goes: what comes later may be about the server."""
        self._kernel.begin()

    def examine(self, failure: Failure) -> dict[str, object]:
        """The verdict as a document, secrets hidden by name."""
        from draftmark.postmortem.diagnose import diagnose
        from draftmark.postmortem.document import document
        from draftmark.postmortem.intake import Hints, read_bytes
        from draftmark.postmortem.model import Unread
        from draftmark.report.why_safe import safe

        tables = compose_why.tables()
        read = partial(read_bytes, hints=Hints(tables.literals))
        sources: list[Source] = [read(name, data) for name, data in _own(failure)]
        skipped = Unread("kernel log", _NOT_NEEDED, _KERNEL_COMMAND)
        verdict = diagnose(sources, tables=tables, unread=[skipped])
        if failure.refusal is None and _in_doubt(verdict):
            kernel, unread = self._kernel.read(read, tables.literals)
            verdict = diagnose([*sources, *kernel], tables=tables, unread=unread)
        return document(safe(_for_a_trial(verdict, failure)))


def _own(failure: Failure) -> Iterator[tuple[str, bytes | Iterator[bytes]]]:
    """What there is of the server itself: names and contents."""
    if failure.log.is_file():
        yield failure.log.name, _blocks(failure.log)
    if failure.refusal is not None:
        yield _REFUSED, f"exec: {' '.join(failure.refusal.split())}\n".encode()
    elif failure.exit_code is not None and not failure.alive:
        yield _EXIT, f"exit code: {_as_shells_say(failure.exit_code)}\n".encode()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            yield block


def _as_shells_say(code: int) -> int:
    """128 + n for signal n: the form in which the judge knows exit statuses."""
    return _SIGNALLED - code if code < 0 else code


def _in_doubt(verdict: Verdict) -> bool:
    """Whether the kernel could know better. A cause that the log itself proves needs no word of it, GPUs apart.

    Not asking is also a guard: on a busy host the kernel may just have killed somebody else's process.
    """
    from draftmark.postmortem.model import Confidence

    cause = compose_why.tables().causes.get(verdict.cause)
    return verdict.confidence is not Confidence.CERTAIN or (cause is not None and cause.family == "gpu")


def told_of_a_trial(verdict: Verdict, failure: Failure) -> Verdict:
    """The verdict on a server that Draftmark started: what did not die was given up and stopped by it."""
    return _still_running(verdict, failure) if failure.alive else verdict


def _for_a_trial(verdict: Verdict, failure: Failure) -> Verdict:
    """The same where there was no unit."""
    verdict = told_of_a_trial(verdict, failure)
    look = f"less {shlex.quote(str(failure.log))}"
    return dataclasses.replace(
        verdict,
        candidates=tuple(
            dataclasses.replace(c, command=look) if " UNIT" in c.command else c for c in verdict.candidates
        ),
        not_examined=tuple(u for u in verdict.not_examined if u.source not in _SUPERVISORS_OWN),
    )


def _still_running(verdict: Verdict, failure: Failure) -> Verdict:
    """A start that was given up: a failure that the log names stands; otherwise nothing died, nothing is known."""
    from draftmark.postmortem.model import Candidate, Confidence, Phase

    stopped = f"Draftmark gave the start up ({failure.because}) and stopped the server."
    cause = compose_why.tables().causes.get(verdict.cause)
    if cause is not None and not verdict.cause.startswith("healthy") and verdict.died is not False:
        return dataclasses.replace(verdict, summary=f"{verdict.summary} {stopped}", died=False)
    longer = Candidate(
        "model-load-timeout",
        "it may only have needed longer",
        "draftmark tune … --start-timeout SECONDS",
    )
    hangs = Candidate("hang-not-crash", "it may be waiting for something", f"less {shlex.quote(str(failure.log))}")
    return dataclasses.replace(
        verdict,
        cause="unsettled",
        confidence=Confidence.UNSETTLED,
        summary=f"{stopped} No line of its log says why it was not ready.",
        phase=Phase.STARTUP,
        candidates=(longer, hangs),
        consequences=(),
        advice=(),
        died=False,
    )
