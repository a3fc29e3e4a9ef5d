"""The controller's end: starts the bridge, knows the nodes, hands on questions and what comes back."""

from __future__ import annotations

import importlib.util
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from draftmark.cluster.wire import Command, Report, line
from draftmark.errors import HostError, UsageError
from draftmark.model import Node, NodeEvent

INSTALL = "pip install 'draftmark[cluster]'"
_TOLD = 6  # lines of what Ray says: two versions, each of Ray and of Python
_STEP = (
    "on a host of the cluster: ray status; to make one: ray start --head there, and here: "
    "ray start --address HOST:PORT --num-cpus 0 --num-gpus 0"
)
_STEPS = {  # by what Ray says
    "ray[client]": "pip install 'ray[client]'; or run it on a host of the cluster, with --cluster auto",
    "Version mismatch": "install Draftmark into the Python that runs Ray on the cluster, or here the cluster's "
    "versions of Python and of Ray: pip install ray==…",
}
_CONNECT_S = 90.0
_LOOK_S = 720.0
_END_S = 60.0
_ENDED_S = 10.0


class Cluster:
    """A connection to a Ray cluster; a context, behind which nothing of ours is left on any node.

    Args:
        address: As Ray takes it: `HOST:PORT`, `auto`, `ray://HOST:PORT`.
        log: Where what Ray prints goes.
    """

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self.nodes: tuple[Node, ...] = ()
        self._log = log
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Cluster:
        """Connect.

        Raises:
            UsageError: Ray is not installed here.
            HostError: The cluster cannot be reached.
        """
        if importlib.util.find_spec("ray") is None:
            raise UsageError(
                "--cluster needs Ray, which is not installed here",
                evidence=(f"no module ray in {sys.prefix}",),
                next_step=INSTALL,
            )
        try:
            self._start()
            self._connected()
        except BaseException:
            self._end(0.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_END_S)

    # --- what is asked --------------------------------------------------------------------------------------

    def look(self, wanted: Sequence[tuple[Node, bytes, float, float]]) -> dict[str, tuple[int, bytes, bytes] | str]:
        """Reserve nodes, and ask the Draftmark on each of them.

        Args:
            wanted: Node, question, CPUs and GPUs to reserve.

        Returns:
            By name: exit status, stdout and stderr; or why it cannot be had.

        Raises:
            HostError: The connection is lost.
        """
        for node, question, cpus, gpus in wanted:
            self._send(Command(do="look", node=node.id, question=question, cpus=cpus, gpus=gpus))
        found: dict[str, tuple[int, bytes, bytes] | str] = {}
        deadline = time.monotonic() + _LOOK_S
        while len(found) < len(wanted):
            report = self._report(deadline - time.monotonic())
            if report is None:
                break
            if report.seen is not None:
                found[self._name(report)] = report.seen
            elif report.lost is not None:
                found[self._name(report)] = "; ".join((report.lost, *report.evidence[:1]))
        return {node.name: found.get(node.name, "it does not answer") for node, *_ in wanted}

    def begin(self, node: str, question: bytes, into: Path) -> None:
        """Let a node run a trial; its files are in `into` once it is said to be over."""
        self._send(Command(do="begin", node=self._id(node), question=question, into=str(into.resolve())))

    def release(self, node: str) -> None:
        """End what runs on a node, and give it back to the cluster."""
        self._send(Command(do="release", node=self._id(node)))

    def events(self, timeout_s: float) -> list[NodeEvent]:
        """What has come, waiting so long for the first.

        Raises:
            HostError: The connection is lost.
        """
        found: list[NodeEvent] = []
        while (report := self._report(0.0 if found else timeout_s)) is not None:
            if report.node:
                name = self._name(report)
                found.append(
                    NodeEvent(
                        node=name, said=report.said, over=report.over, lost=report.lost, evidence=report.evidence
                    )
                )
        return found

    # --- the bridge -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "draftmark.cluster.bridge", self.address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: it is told in its turn
            )
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stdout: BinaryIO) -> None:
        for data in stdout:
            self._reports.put(msgspec.json.decode(data, type=Report))
        self._reports.put(None)

    def _connected(self) -> None:
        report = self._report(_CONNECT_S)
        if report is not None and report.nodes is not None:
            self.nodes = report.nodes
            return
        if report is not None and report.failed is not None:
            kind, words = report.failed
            told = tuple(each.strip() for each in words.splitlines() if each.strip())[:_TOLD]
            evidence = tuple(f"{kind}: {each}" if not at else each for at, each in enumerate(told)) or (kind,)
        else:
            evidence = (f"no answer within {_CONNECT_S:.0f} s",)
        raise HostError(
            f"the Ray cluster at {self.address} cannot be reached",
            evidence=evidence,
            next_step=next((step for sign, step in _STEPS.items() if sign in " ".join(evidence)), _STEP),
        )

    def _report(self, timeout_s: float) -> Report | None:
        try:
            report = self._reports.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        if report is None:
            self._reports.put(None)
            raise HostError(
                "the connection to the Ray cluster is lost",
                evidence=self._last_words(),
                next_step="ray status",
            )
        return report

    def _last_words(self) -> tuple[str, ...]:
        """Of the bridge: how it ended, and what Ray printed last."""
        try:
            status = self._process.wait(1.0) if self._process is not None else None
        except subprocess.TimeoutExpired:
            status = None
        ended = "" if status is None else f"the process that speaks to Ray ended with exit status {status}"
        try:
            lines = self._log.read_bytes()[-4000:].decode("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        return tuple(each for each in (ended, *[text for text in lines if text.strip()][-3:]) if each)

    def _send(self, command: Command) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - inside the context
        assert process.stdin is not None  # noqa: S101 - as asked for
        try:
            process.stdin.write(line(command))
            process.stdin.flush()
        except OSError:
            return  # it is gone, which `_report` says

    def _end(self, grace_s: float) -> None:
        """The bridge ends its nodes' trials, and itself; killed, it takes its agents with it, they their trials."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(grace_s)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(_ENDED_S)

    def _name(self, report: Report) -> str:
        return next((node.name for node in self.nodes if node.id == report.node), report.node)

    def _id(self, name: str) -> str:
        return next(node.id for node in self.nodes if node.name == name)
