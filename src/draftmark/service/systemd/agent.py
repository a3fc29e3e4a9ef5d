"""Speaks to Draftmark's script on the service's host: what is sent, what comes back.

Everything that changes the host is one command of that script, run there under a lock and fenced by a token; a
controller can die between any two of them. The script is sent along where there may be none yet, and afterwards is
called where `open` has put it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib import resources

from draftmark.ports import Completed, Host

_PARTS = ("agent_restore.sh", "agent_stop.sh", "agent_switch.sh", "agent.sh")  # the last one calls
_FROM_STDIN = 'SCRIPT=$(cat); eval "$SCRIPT"'
_LOST = 3
_IN_PLACE = f'[ -r "$0" ] || exit {_LOST}; exec sh "$0" "$@"'


class Code(IntEnum):
    """Exit status of the script."""

    DONE = 0
    FAILED = 1
    LOST = _LOST
    BUSY = 4
    HELD = 5
    PENDING = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command of the script said.

    Attributes:
        code: How it ended; None when it did not end by itself.
        values: Its `key=value` lines, in order; a key can come several times.
        stderr: Lines that say why it failed.
    """

    code: Code | None
    values: tuple[tuple[str, str], ...] = ()
    stderr: tuple[str, ...] = field(default=())

    def get(self, key: str, default: str = "") -> str:
        """The last value of `key`."""
        return next((value for name, value in reversed(self.values) if name == key), default)

    def number(self, key: str) -> int | None:
        """The last value of `key`; None where it is no whole number."""
        text = self.get(key)
        return int(text) if text.removeprefix("-").isdecimal() else None

    def all(self, key: str) -> tuple[str, ...]:
        """Every value of `key`."""
        return tuple(value for name, value in self.values if name == key)

    @property
    def evidence(self) -> tuple[str, ...]:
        """What shows why it failed."""
        return (*self.stderr, *self.all("problem"), *self.all("pending"))


@cache
def script() -> bytes:
    """The whole script."""
    folder = resources.files(__package__)
    return b"\n".join((folder / part).read_bytes() for part in _PARTS)


def scope_word(*, user_scope: bool) -> str:
    """The word of systemctl for whose manager it is."""
    return "--user" if user_scope else "--system"


def call_sent(
    host: Host, command: str, unit: str, *, user_scope: bool, words: Sequence[str] = (), timeout_s: float = 60.0
) -> Answer:
    """A command for which nothing of ours need be on the host: open, restore, status.

    Raises:
        HostError: The host itself cannot be reached any more.
    """
    argv = ["sh", "-c", _FROM_STDIN, "draftmark", command, unit, scope_word(user_scope=user_scope), *words]
    return parse(host.run(argv, input=script(), timeout_s=timeout_s))


def call_in_place(
    host: Host, state: str, command: str, words: Sequence[str], *, data: bytes = b"", timeout_s: float = 60.0
) -> Answer:
    """A command of the script that `open` has left in `state`; `LOST` when it is not there any more.

    Raises:
        HostError: The host itself cannot be reached any more.
    """
    argv = ["sh", "-c", _IN_PLACE, f"{state}/agent", command, *words]
    return parse(host.run(argv, input=data, timeout_s=timeout_s))


def parse(completed: Completed) -> Answer:
    """Take an answer apart; lines that are none of ours are left out."""
    lines = completed.stdout.decode("utf-8", "replace").splitlines()
    values = tuple((key, value) for key, equals, value in (line.partition("=") for line in lines) if equals)
    stderr = tuple(line for line in completed.stderr.splitlines() if line.strip())
    if completed.timed_out:
        stderr = (*stderr, "it took too long and was killed")
    if completed.missing:
        stderr = (*stderr, "there is no sh")
    try:
        code = None if completed.status is None or completed.timed_out else Code(completed.status)
    except ValueError:  # of a shell or a sudo that did not get as far as the script
        code = Code.FAILED
        stderr = (*stderr, f"exit status {completed.status}")
    return Answer(code, values, stderr)
