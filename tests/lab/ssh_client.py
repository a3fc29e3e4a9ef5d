"""A home folder with keys, known hosts and a configuration, for an SSH client that a test looks at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from .packages import UnavailableError
from .sshd import Sshd, keygen, user


class SshLab:
    """A server, and a home from which one may log in there.

    Attributes:
        server: It.
        home: What HOME is set to.
        key: Lets in; it is where a client finds it by itself.
    """

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.dot_ssh = self.home / ".ssh"
        self.dot_ssh.mkdir(parents=True, mode=0o700)
        self.key = keygen(self.dot_ssh / "id_ed25519")
        self.login = user()
        self.servers: list[Sshd] = []
        self.server = self.add("server", options)
        self.known_hosts.write_text(self.server.known_as())

    @property
    def known_hosts(self) -> Path:
        """The file."""
        return self.dot_ssh / "known_hosts"

    @property
    def destination(self) -> str:
        """Of the server."""
        return f"{self.login}@127.0.0.1:{self.server.port}"

    def add(
        self, name: str, options: Sequence[str] = (), users: Sequence[str] = (), over: Path | None = None
    ) -> Sshd:
        """One more server, which lets the same key in."""
        if os.geteuid() == 0:  # root's own start-up files are no business of a test
            root = f"root:x:0:0:root:{self.folder}:/bin/sh"
            users = (*users, root)
        server = Sshd(self.folder / name, options, users, over)
        self.servers.append(server)
        server.authorise(self.key)
        return server

    def configure(self, *lines: str) -> None:
        """Write the client's configuration."""
        (self.dot_ssh / "config").write_text("\n".join(lines) + "\n")

    def close(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.cut()


def ssh_lab(folder: Path, options: Sequence[str] = ()) -> Iterator[SshLab]:
    """For a fixture: a lab, with HOME set and no agent while it is there."""
    pytest.importorskip("asyncssh")
    try:
        lab = SshLab(folder, options)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(lab.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        try:
            yield lab
        finally:
            lab.close()
