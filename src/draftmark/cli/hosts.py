"""The host that a service is on: this computer, or one over SSH, open for as long as the command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from draftmark.ports import Host
from draftmark.service.local import LocalHost

_OPEN = ExitStack()
_CONNECTED: dict[str, Host] = {}
_LISTENERS: list[Callable[[str], None]] = []


@contextmanager
def listening(tell: Callable[[str], None]) -> Iterator[None]:
    """While inside, `tell` is told when a lost connection is waited for; from another thread."""
    _LISTENERS.append(tell)
    try:
        yield
    finally:
        _LISTENERS.remove(tell)


def _waits(what: str) -> None:
    for tell in tuple(_LISTENERS):
        tell(what)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--host`."""
    parser.add_argument(
        "--host",
        metavar="[USER@]HOST[:PORT]",
        help="the service is there: over SSH, with your ~/.ssh/config, agent and known hosts",
    )


def is_remote(args: argparse.Namespace) -> bool:
    """Whether the service is on another host than this one."""
    return getattr(args, "host", None) is not None


def host_of(args: argparse.Namespace) -> Host:
    """The host that the arguments name.

    Raises:
        UsageError: SSH is not installed, or the destination is none.
        HostError: It cannot be reached.
        RefusedError: Its key is not known, or has changed.
    """
    return host_at(args.host if is_remote(args) else None)


def host_at(destination: str | None) -> Host:
    """A host by its SSH destination, one connection each; this computer for None. Raises as `host_of`."""
    if destination is None:
        return LocalHost()
    if destination not in _CONNECTED:
        from draftmark.service.ssh import SshHost

        _CONNECTED[destination] = _OPEN.enter_context(SshHost.connect(destination, on_wait=_waits))
    return _CONNECTED[destination]


def close() -> None:
    """Let go of every host that was opened."""
    _CONNECTED.clear()
    _OPEN.close()
