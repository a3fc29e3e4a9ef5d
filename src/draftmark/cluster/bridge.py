"""The process that speaks Ray: `python -m draftmark.cluster.bridge ADDRESS`, commands on stdin, reports on stdout.

A process of its own, since Ray takes much for itself: it prints and logs, sets signal handlers, starts threads, and
ends its process when the raylet beside it dies. Here all that costs a line on stderr. The end of stdin is the end
of everything: each node's trial is stopped, then its agent.

Ray's habits: its usage report is off, nothing of the driver's directory or environment is shipped, workers' output
stays in Ray's own files on the nodes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from draftmark.cluster import agent as agent_module
from draftmark.cluster.wire import Command, Report, line
from draftmark.model import Node

_REACH_S = 5.0
_HOLD_S = 60.0  # for a worker to start and to get what it asks for
_LOOK_S = 600.0  # embedded: engine and model may have to be fetched
_WAIT_S = 2.0
_GAP_S = 20.0
_SILENCE_S = 60.0
_END_S = 40.0
_BLOCK = 4 << 20
_LOG = "draftmark.log"
_LAST = "trial.json"
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

Say = Callable[[Report], None]


class Lane:
    """One node of which something was asked: its agent, and a thread that minds it."""

    def __init__(self, ray: Any, node: Node, say: Say) -> None:
        self._ray, self._node, self._say = ray, node, say
        self.agent: Any = None
        self._ended = False

    def look(self, command: Command) -> None:
        """Reserve what the engine needs, and ask."""
        self._spawn(self._look, command)

    def begin(self, command: Command) -> None:
        """Run a trial."""
        self._spawn(self._begin, command)

    def end(self) -> Any:
        """Ask the agent to end what it runs; what can be waited for, or None."""
        self._ended = True
        with contextlib.suppress(Exception):
            return self.agent.discard.remote() if self.agent is not None else None
        return None

    def kill(self) -> None:
        """The agent itself; the node's resources are free then."""
        agent, self.agent = self.agent, None
        if agent is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(agent)

    def _spawn(self, what: Callable[[Command], None], command: Command) -> None:
        def run() -> None:
            try:
                what(command)
            except self._ray.exceptions.GetTimeoutError:
                self._lost("it does not answer any more", ())
            except Exception as error:  # whatever Ray has to say of a node or of itself
                told = [each.strip() for each in str(error).splitlines() if each.strip()]
                self._lost(_gone(error), tuple(told[:4]))

        threading.Thread(target=run, daemon=True).start()

    def _lost(self, why: str, evidence: tuple[str, ...]) -> None:
        if not self._ended:
            self._say(Report(node=self._node.id, lost=why, evidence=evidence))
            self.kill()

    def _look(self, command: Command) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        made = self._ray.remote(num_cpus=command.cpus, num_gpus=command.gpus, max_concurrency=8, max_restarts=0)(
            agent_module.Agent
        )
        here = NodeAffinitySchedulingStrategy(node_id=self._node.id, soft=False)
        self.agent = made.options(scheduling_strategy=here).remote(_SILENCE_S, int(command.gpus))
        try:
            self._ray.get(self.agent.__ray_ready__.remote(), timeout=_HOLD_S)
        except self._ray.exceptions.GetTimeoutError:
            asked = f"asked for: {command.cpus:g} CPUs, {command.gpus:g} GPUs"
            self._lost(f"it could not be had within {_HOLD_S:.0f} s: others use it", (asked,))
            return
        seen = self._ray.get(self.agent.look.remote(command.question, _LOOK_S), timeout=_LOOK_S + _SILENCE_S)
        self._say(Report(node=self._node.id, seen=seen))

    def _begin(self, command: Command) -> None:
        get = self._ray.get
        get(self.agent.begin.remote(command.question), timeout=_SILENCE_S)
        heard, over = 0, False
        while not over:
            lines, over = self._poll(heard)
            heard += len(lines)
            for said in lines:
                self._say(Report(node=self._node.id, said=said))
        names = get(self.agent.files.remote(), timeout=_SILENCE_S)
        for name, size in sorted(names, key=lambda each: each[0] == _LAST):
            self._fetch(name, size, Path(command.into))
        get(self.agent.discard.remote(), timeout=_SILENCE_S)
        self._say(Report(node=self._node.id, over=True))

    def _poll(self, heard: int) -> tuple[list[bytes], bool]:
        """Of a node that cannot be reached just now, once more for a while: its trial goes on."""
        until = time.monotonic() + _GAP_S
        while True:
            try:
                lines, over = self._ray.get(self.agent.poll.remote(heard, _WAIT_S), timeout=_SILENCE_S)
                return lines, over
            except self._ray.exceptions.ActorUnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(_WAIT_S)

    def _fetch(self, name: str, size: int, into: Path) -> None:
        if name == _LOG and not size:
            return
        with (into / Path(name).name).open("wb") as file:
            for offset in range(0, size, _BLOCK):
                file.write(self._ray.get(self.agent.read.remote(name, offset, _BLOCK), timeout=_SILENCE_S))


def _gone(error: Exception) -> str:
    """What became of a node, by the exception that says so."""
    name = type(error).__name__
    if name in ("ActorDiedError", "RayActorError", "NodeDiedError", "WorkerCrashedError", "ActorUnavailableError"):
        return "it went away"
    return f"it cannot be used ({name})"


def nodes_of(found: Sequence[dict[str, Any]]) -> tuple[Node, ...]:
    """The nodes that are alive, from `ray.nodes()`, in an order that stays."""
    alive = sorted((n for n in found if n["Alive"]), key=lambda n: (n["NodeManagerHostname"], n["NodeID"]))
    hosts = Counter(n["NodeManagerAddress"] for n in alive)
    names = Counter(n["NodeManagerHostname"] for n in alive)
    seen: Counter[str] = Counter()
    made = []
    for each in alive:
        address, name = each["NodeManagerAddress"], each["NodeManagerHostname"]
        made.append(
            Node(
                id=each["NodeID"],
                name=name if names[name] == 1 else f"{name}-{each['NodeID'][:6]}",
                address=address,
                cpus=float(each["Resources"].get("CPU", 0.0)),
                gpus=float(each["Resources"].get("GPU", 0.0)),
                index=seen[address],
                shared=hosts[address] > 1,
            )
        )
        seen[address] += 1
    return tuple(made)


def connect(address: str) -> Any:
    """Ray, connected.

    Raises:
        OSError: Nobody listens there.
        Exception: Whatever Ray says.
    """
    os.environ.update(_SETTINGS)
    host, colon, port = address.rpartition(":")
    if colon and "://" not in address and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    ray.cloudpickle.register_pickle_by_value(agent_module)
    return ray


def serve(ray: Any, say: Say, commands: Callable[[], bytes]) -> None:
    """Until there are no more commands."""
    nodes = {node.id: node for node in nodes_of(ray.nodes())}
    say(Report(nodes=tuple(nodes.values())))
    lanes: dict[str, Lane] = {}
    while data := commands():
        command = msgspec.json.decode(data, type=Command)
        if command.do == "end":
            break
        lane = lanes.setdefault(command.node, Lane(ray, nodes[command.node], say))
        if command.do == "look":
            lane.look(command)
        elif command.do == "begin":
            lane.begin(command)
        elif command.do == "release":
            threading.Thread(target=_end, args=(ray, [lane]), daemon=True).start()
    _end(ray, list(lanes.values()))


def _end(ray: Any, lanes: Sequence[Lane]) -> None:
    ending = [ref for lane in lanes if (ref := lane.end()) is not None]
    if ending:
        with contextlib.suppress(Exception):
            ray.wait(ending, num_returns=len(ending), timeout=_END_S)
    for lane in lanes:
        lane.kill()


def main(address: str) -> int:
    """Connect, serve, end."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what Ray prints is none of what is reported
    lock = threading.Lock()

    def say(report: Report) -> None:
        with lock, contextlib.suppress(OSError):
            out.write(line(report))

    try:
        ray = connect(address)
    except Exception as error:  # Ray has many
        say(Report(failed=(type(error).__name__, str(error))))
        return 1
    serve(ray, say, sys.stdin.buffer.readline)
    say(Report(ended=True))
    with contextlib.suppress(Exception):
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
