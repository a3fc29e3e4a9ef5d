"""The exception tree. Each error says what happened, shows the evidence, and names the next step.

DraftmarkError                 (exit status)
├── UsageError                  2   wrong words: flags, references, paths, prompt files
│   └── BadInputError           2   a file or directory handed over cannot be used
│       └── UnknownArchitectureError 2   a model of a kind that is not known (engines.model_config)
├── RefusedError               30   doing it would not be safe, or could mean nothing
│   ├── MeasuringError         30   a measurement runs: nothing may stop the service under it
│   └── BusyError              30   requests are in flight: a stop would cut them
├── InconclusiveError          40   measured, but the figures settle nothing
├── FailedError                50   it failed and everything was put back
│   ├── StartError             50   a server did not become ready
│   ├── HostError              50   the service's host cannot be reached, or not any more
│   │   └── RightsError        50   it lets us do nothing as root any more
│   ├── ProvisionError         50   the embedded engine or model could not be had
│   └── StorageError           50   disk full, permission lost while writing
└── UnrestoredError            51   it failed and the original could not be put back
Interrupted (BaseException)   128+signal   the user or the system asked us to stop
"""

from __future__ import annotations


class DraftmarkError(Exception):
    """Base of every error that a user is meant to read.

    Args:
        what: One sentence: what happened.
        evidence: Lines that show it (a log line, an errno text, a value).
        next_step: What to type or change next.
    """

    exit_status = 50

    def __init__(self, what: str, *, evidence: tuple[str, ...] = (), next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.evidence = evidence
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what, *(f"  | {line}" for line in self.evidence)]
        if self.next_step:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class UsageError(DraftmarkError):
    """The words on the command line cannot be carried out as they stand."""

    exit_status = 2


class BadInputError(UsageError):
    """A file or directory that was handed over cannot be used."""


class RefusedError(DraftmarkError):
    """Doing it would be unsafe or could mean nothing, so nothing was touched."""

    exit_status = 30


class MeasuringError(RefusedError):
    """A measurement runs, and something would have stopped, changed or restarted the service under it."""


class BusyError(RefusedError):
    """Requests are in flight, and a stop would cut them. Nothing was stopped."""


class InconclusiveError(DraftmarkError):
    """The measurement happened; its figures settle nothing."""

    exit_status = 40


class FailedError(DraftmarkError):
    """It failed, and everything was put back as it was."""

    exit_status = 50


class StartError(FailedError):
    """A server did not become ready."""


class HostError(FailedError):
    """The service's host cannot be reached, or not any more."""


class RightsError(HostError):
    """The right to run root's commands on the service's host is gone: nothing can be done there from here."""


class ProvisionError(FailedError):
    """The embedded engine or its model could not be had."""


class StorageError(FailedError):
    """A record could not be written: disk full, permission lost."""


class UnrestoredError(DraftmarkError):
    """It failed, and the original could not be put back. The commands that do are in `next_step`."""

    exit_status = 51


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived. Not an Exception, so that no handler swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def exit_status(self) -> int:
        """The shell's convention for a death by signal."""
        return 128 + self.signum
