"""Whom to trust: host keys as the known_hosts files have them, and what a server showed that is not there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import asyncssh

_USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_Keys = Sequence[asyncssh.SSHKey]


class HostKeys:
    """Looks hosts up in known_hosts files, and remembers what it found.

    A line that cannot be read is passed over, as `ssh` does. An unknown host is never trusted, whatever
    StrictHostKeyChecking or an empty UserKnownHostsFile says.

    Args:
        user_files: UserKnownHostsFile, None where it is not set.
        global_files: GlobalKnownHostsFile, None where it is not set.
        alias: HostKeyAlias.
    """

    def __init__(
        self, user_files: Sequence[str] | None, global_files: Sequence[str] | None, alias: str | None = None
    ) -> None:
        user = _USER_FILES if user_files is None else user_files
        system = _GLOBAL_FILES if global_files is None else global_files
        self.files = tuple(path for path in (_expanded(name) for name in (*user, *system)) if path.is_file())
        self.alias = alias
        self.label = ""
        self.known: _Keys = ()
        self.revoked: _Keys = ()

    def __call__(self, host: str, _address: str, port: int | None) -> tuple[_Keys, _Keys, _Keys]:
        """Trusted keys, trusted authorities and revoked keys of a host; `port` is None for 22.

        The address is left out: a name whose address is known under another name is still unknown.
        """
        if self.alias is not None:
            port = None
        self.label = f"[{host}]:{port}" if port else host
        entries = asyncssh.import_known_hosts("")
        for path in self.files:
            for line in _lines(path):
                try:
                    entries.load(line)
                except ValueError:  # what asyncssh cannot read; its own errors are of this kind, too
                    continue
        keys, authorities, revoked, *_ = entries.match(host.lower(), "", port)
        self.known, self.revoked = keys, revoked
        return keys, authorities, revoked


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()


def _expanded(name: str) -> Path:
    home = str(Path.home())
    return Path(os.path.expandvars(name.replace("%d", home))).expanduser()


class Witness(asyncssh.SSHClient):
    """What one connection tells of itself: the key that was not trusted, the banner, its end."""

    def __init__(self) -> None:
        self.shown: asyncssh.SSHKey | None = None
        self.authority = False
        self.banner = ""

    def validate_host_public_key(self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey) -> bool:
        """Never; the key is kept for the error."""
        self.shown = key
        return False

    def validate_host_ca_key(self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey) -> bool:
        """Never; the authority's key is kept for the error."""
        self.shown, self.authority = key, True
        return False

    def auth_banner_received(self, msg: str, _lang: str) -> None:
        """Often says who may log in, and how."""
        self.banner += msg
