"""A network of one cable, between this machine and a namespace of its own, that can be cut in several ways."""

from __future__ import annotations

import os
import shutil
import subprocess
from enum import StrEnum
from types import TracebackType

from .packages import UnavailableError

_WRONG = "02:00:00:00:00:99"


class Cut(StrEnum):
    """How the cable is cut."""

    SILENT = "silent"  # every packet is lost on the way, both sides see a link
    THERE = "there"  # the server's side is down
    HERE = "here"  # the client's side is down, as of a laptop that leaves its network


class Cable:
    """From `with` on: a namespace in which a client runs, and an address here where a server listens.

    Attributes:
        address: Of this machine, as it is reached from the namespace.
        prefix: Runs a command in the namespace.
    """

    def __init__(self) -> None:
        number = os.getpid() % 250
        self._name = f"draftmark-lab-{os.getpid()}"
        self._here, self._there = f"dmc{os.getpid()}", f"dms{os.getpid()}"
        self.address = f"10.231.{number}.1"
        self._client = f"10.231.{number}.2"
        self.prefix = ("ip", "netns", "exec", self._name)

    def __enter__(self) -> Cable:
        """Lay it.

        Raises:
            UnavailableError: It cannot be had here.
        """
        if shutil.which("ip") is None:
            raise UnavailableError("a cut link needs ip, of iproute2")
        made = subprocess.run(["ip", "netns", "add", self._name], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise UnavailableError(f"no network namespace can be made here: {made.stderr.strip()}")
        try:
            self._ip("link", "add", self._there, "type", "veth", "peer", "name", self._here, "netns", self._name)
            self._ip("addr", "add", f"{self.address}/24", "dev", self._there)
            self._ip("link", "set", self._there, "up")
            self._inside("addr", "add", f"{self._client}/24", "dev", self._here)
            self._inside("link", "set", self._here, "up")
            self._inside("link", "set", "lo", "up")
        except BaseException:
            self._ip("netns", "del", self._name)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ip("netns", "del", self._name)

    def cut(self, how: Cut) -> None:
        """From now on nothing comes through."""
        match how:
            case Cut.SILENT:  # frames for nobody's hardware address
                self._ip("neigh", "replace", self._client, "lladdr", _WRONG, "nud", "permanent", "dev", self._there)
                self._inside(
                    *("neigh", "replace", self.address, "lladdr", _WRONG, "nud", "permanent", "dev", self._here)
                )
            case Cut.THERE:
                self._ip("link", "set", self._there, "down")
            case Cut.HERE:
                self._inside("link", "set", self._here, "down")

    def mend(self) -> None:
        """It is as it was."""
        self._ip("link", "set", self._there, "up")
        self._inside("link", "set", self._here, "up")
        self._ip("neigh", "flush", "dev", self._there, "nud", "all")
        self._inside("neigh", "flush", "dev", self._here, "nud", "all")
        for command in (
            ("neigh", "del", self._client, "dev", self._there),
            ("-n", self._name, "neigh", "del", self.address, "dev", self._here),
        ):
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _inside(self, *words: str) -> None:
        self._ip("-n", self._name, *words)
