"""The host that a service is on: this computer, or one over SSH, open for as long as the command runs."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from draftmark.ports import Host
from draftmark.service.local import LocalHost

_OPEN = ExitStack()


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
    if not is_remote(args):
        return LocalHost()
    from draftmark.service.ssh import SshHost

    return _OPEN.enter_context(SshHost.connect(args.host))


def close() -> None:
    """Let go of every host that was opened."""
    _OPEN.close()
