"""Root's commands for a user who is not root: through `sudo`, which is never asked for a password."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from draftmark.errors import RefusedError, RightsError
from draftmark.ports import Completed, Host, Stream
from draftmark.service.local import SETTINGS
from draftmark.service.reading import contents, read_command

_SUDO = ("sudo", "-n", "--")
_SPARE_S = 1  # root's own limit comes after the host's
_NOT_RUN = (126, 127)
_REFUSED = 1  # sudo(8), "Exit value"


def elevated(host: Host) -> Host:
    """The same host with commands and files as root; itself where its user is root."""
    return host if host.is_root else SudoHost(host)


def check_elevation(host: Host, commands: Sequence[str] = ()) -> None:
    """See that `elevated(host)` will work, before anything is changed.

    Args:
        host: The host, as the user reaches it or elevated already.
        commands: Full paths of what will be run as root, for the advice; all where none is named.

    Raises:
        RefusedError: sudo is not there, or wants a password, or does not let this user.
        HostError: The host itself cannot be reached any more.
    """
    if isinstance(host, SudoHost):
        host = host.plain
    if host.is_root:
        return
    ended = host.run((*_SUDO, "true"))
    if ended.ok:
        return
    said = tuple(line for line in ended.stderr.splitlines() if line.strip())[:5]
    if ended.missing:
        raise RefusedError(
            f"changing a service on {host.name} needs root, and there is no sudo; nothing was changed",
            evidence=said,
            next_step=_as_root(host),
        )
    user = host.run(("id", "-un")).stdout.decode("utf-8", "replace").strip() or "USER"
    allowed = ", ".join((*commands, "/usr/bin/true")) if commands else "ALL"
    raise RefusedError(
        f"changing a service on {host.name} needs root, and sudo does not let {user} without a password; "
        "nothing was changed",
        evidence=said or (f"sudo -n true: exit status {ended.status}",),
        next_step=f"let root add `{user} ALL=(root) NOPASSWD: {allowed}` by `visudo -f /etc/sudoers.d/draftmark`, "
        f"or {_as_root(host)}",
    )


def _as_root(host: Host) -> str:
    return f"run Draftmark as root there, or connect as root: --host root@{host.name}"


class SudoHost:
    """ports.Host whose commands run as root.

    What runs as root cannot be killed by the user who asked for it. So where sudo lets this user run anything, each
    command has a `timeout` above it that runs as root, too; where sudo lets them run certain commands only, it
    has not, and a command that takes too long is left to its own end.

    Args:
        host: Where the user may use sudo.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._anything: bool | None = None
        self._lets_true: bool | None = None

    @property
    def plain(self) -> Host:
        """The host as its user has it."""
        return self._host

    @property
    def name(self) -> str:
        """Host name."""
        return self._host.name

    @property
    def is_root(self) -> bool:
        """Its commands do."""
        return True

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        """Run as root.

        Raises:
            HostError: The host cannot be reached any more.
            RightsError: sudo has let this user before, and does not any more.
        """
        ended = self._host.run(
            self._as_root(argv, timeout_s), input=input, timeout_s=timeout_s, limit_bytes=limit_bytes
        )
        if ended.ok and self._lets_true is None:
            self._lets_true = self._may_run_anything() or self._host.run((*_SUDO, "true")).ok
        elif self._lets_true and not ended.stdout and (ended.missing or ended.status == _REFUSED):
            self._must_still_work()
        return _without_wrapper(ended, argv)

    def _must_still_work(self) -> None:
        """Many a command fails like sudo itself: ask for one that cannot."""
        now = self._host.run((*_SUDO, "true"))
        if now.missing or now.status == _REFUSED:
            said = tuple(line for line in now.stderr.splitlines() if line.strip())[:5]
            raise RightsError(
                f"sudo on {self.name} does not let this user run root's commands any more",
                evidence=said or ("there is no sudo",),
                next_step="give the right back, or run it as root",
            )

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> Stream:
        """Start as root.

        Raises:
            HostError: The host cannot be reached any more.
        """
        return _SudoStream(self._host.stream(self._as_root(argv, timeout_s), timeout_s=timeout_s), argv)

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """The beginning of a regular file, as root reads it.

        Raises:
            OSError: Not there, not readable, not a regular file.
            HostError: The host cannot be reached any more.
        """
        if self._may_run_anything():
            return contents(self.run(read_command(path, limit_bytes), limit_bytes=limit_bytes), path)
        # The user looks what kind of file it is, where they may; root's `head` is all that is let.
        command = read_command(path, limit_bytes, before=_SUDO)
        return contents(self._host.run(command, limit_bytes=limit_bytes), path)

    def reach(self, address: str, port: int) -> tuple[str, int]:
        """As for its user."""
        return self._host.reach(address, port)

    def _as_root(self, argv: Sequence[str], seconds: float) -> tuple[str, ...]:
        if not self._may_run_anything():
            return (*_SUDO, *argv)
        # sudo takes most variables away
        settings = (f"{name}={value}" for name, value in SETTINGS.items())
        limit = str(math.ceil(seconds) + _SPARE_S)
        return (*_SUDO, "env", *settings, "timeout", "-s", "KILL", limit, *argv)

    def _may_run_anything(self) -> bool:
        with self._lock:
            if self._anything is None:
                self._anything = self._host.run((*_SUDO, "env", "A=B", "timeout", "-s", "KILL", "9", "true")).ok
            return self._anything


class _SudoStream:
    """ports.Stream that tells a missing program from a missing sudo."""

    def __init__(self, stream: Stream, argv: Sequence[str]) -> None:
        self._stream = stream
        self._argv = argv

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of stdout."""
        return iter(self._stream)

    def close(self) -> Completed:
        """As of the stream below."""
        return _without_wrapper(self._stream.close(), self._argv)


def _without_wrapper(ended: Completed, argv: Sequence[str]) -> Completed:
    """What sudo or timeout say of a program that is not there, as the host itself would have said it."""
    first = ended.stderr.partition("\n")[0]
    by_timeout = ended.status in _NOT_RUN and first.startswith("timeout: ") and argv[0] in first
    by_sudo = ended.status == 1 and first == f"sudo: {argv[0]}: command not found"
    if not (by_timeout or by_sudo):
        return ended
    return replace(ended, status=None, missing=True)
