"""`python -m tests.lab.unit_cycles N URL [HOST]`: a unit is stopped and started N times, while others use it.

Runs on the unit's own host, or anywhere with an SSH destination. A line of JSON a cycle.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from draftmark.cli import hosts
from draftmark.cli.rig import Rig
from draftmark.cli.services import Member
from draftmark.cli.unit_target import unit_target
from draftmark.engines.llamacpp.engine import LlamaCpp
from draftmark.load.client import run_closed_loop
from draftmark.load.workloads import load_workloads
from draftmark.model import Arm, Foreign
from draftmark.service.host import SystemClock
from draftmark.tune.drain import Drain
from draftmark.tune.foreign import Watch

from .llm_unit import UNIT, LlmLab
from .root import CHECKOUT

_GAP_S = 1.2
_SHORTEST, _LONGEST = 8, 24  # tokens: long enough to be met by a look over SSH
_TAKEN = "processing task"
_DONE = "stop processing"
_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Cycle:
    """One start and stop.

    Attributes:
        number: Of it.
        stop: How the stop was classified.
        waited_s: For others' requests, before it.
        seen: What was said of the foreign client while it had a request in flight; None when it was not seen.
        sent: Requests of the foreign client that reached the port.
        answered: In full.
        untaken: Reset though the connection was made: they lay in the kernel when the server was told to end.
        lost: Requests that the server had taken, by its own log, and has not ended.
        log: The end of its log, where one was lost.
    """

    number: int
    stop: str
    waited_s: float
    seen: str | None
    sent: int
    answered: int
    untaken: int
    lost: int
    log: str = ""


class ForeignClient:
    """Somebody else's requests, at random times."""

    def __init__(self, url: str, chance: random.Random) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._chance = chance
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.busy = threading.Event()
        self.sent = self.answered = self.broken = 0

    def __enter__(self) -> ForeignClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._over.is_set():
            self._ask(self._chance.randint(_SHORTEST, _LONGEST))
            self._over.wait(self._chance.uniform(0.0, _GAP_S))

    def _ask(self, tokens: int) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.connect()
        except OSError:
            return  # nobody listens: nothing was accepted
        self.sent += 1
        body = json.dumps({"prompt": "One, two, three,", "n_predict": tokens, "ignore_eos": True})
        try:
            self.busy.set()
            connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.answered += answer.status == 200 and "content" in json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            self.broken += 1
        finally:
            self.busy.clear()
            connection.close()


class Cycles:
    """Starts and stops one unit.

    Args:
        rig: Of it, held.
        url: Of its server, for the foreign client.
    """

    def __init__(self, rig: Rig, url: str, folder: Path, chance: random.Random) -> None:
        self._rig = rig
        self._url = url
        self._folder = folder
        self._chance = chance
        self._clock = SystemClock()
        self._starter = rig.starter(self._clock, 120.0)
        self._drain = Drain(supervisor=rig.supervisor, clock=self._clock, timeout_s=120.0, foreign=Foreign.WAIT)
        self._watch = Watch(clock=self._clock, policy=Foreign.ABORT)
        copied = load_workloads(["copy"])[0]
        short = dataclasses.replace(copied.prompts[0], max_tokens=4)
        self._workload = dataclasses.replace(copied, prompts=(short,))

    def vacate(self) -> None:
        """The first stop, of the original."""
        self._rig.ends(self._clock, 120.0, lambda _what, _limit: None).vacate()

    def cycle(self, number: int) -> Cycle:
        """Start, load, look for others, stop while others go on."""
        log = self._folder / f"{number}.log"
        command = self._rig.engine.with_arm(self._rig.supervisor.original, Arm(4 * (number % 2)))
        ready = self._starter.start(command, log)
        with ForeignClient(self._url, self._chance) as other:
            with self._rig.supervisor.measuring():
                run_closed_loop(self._rig.reach(self._url), self._workload, concurrency=1, warmup=0)
            seen = None
            if other.busy.wait(30):
                seen = self._watch.seen(ready.client)
            self._clock.sleep(self._chance.uniform(0.0, 1.0))
            report = self._drain.stop(ready.client)
        self._rig.supervisor.gather_log()
        text = log.read_text()
        lost = text.count(_TAKEN) - text.count(_DONE)
        return Cycle(
            number,
            str(report.outcome),
            report.waited_s or 0.0,
            seen,
            other.sent,
            other.answered,
            other.broken,
            lost,
        )


def cycles(count: int, url: str, host: str | None, seed: int) -> Iterator[Cycle]:
    """Hold the unit, and cycle."""
    words = {"service": f"unit:{UNIT}", "host": host, "load_from": "here", "foreign": Foreign.WAIT}
    chance = random.Random(seed)
    target = unit_target(argparse.Namespace(**words), [Member(UNIT, host)], LlamaCpp(method=None))
    try:
        with tempfile.TemporaryDirectory() as folder, target.rig(SystemClock()) as rig:
            player = Cycles(rig, url, Path(folder), chance)
            player.vacate()
            yield from map(player.cycle, range(1, count + 1))
    finally:
        hosts.close()


def cycle_faults(cycle: Cycle) -> list[str]:
    """What must not be."""
    faults = []
    if cycle.lost:
        faults.append(f"{cycle.lost} requests that the server had taken were lost: {cycle.log}")
    if cycle.seen is None:
        faults.append("the foreign client was not seen")
    if cycle.stop == "killed":
        faults.append("the server was killed")
    if cycle.answered + cycle.untaken + cycle.lost < cycle.sent:
        faults.append("a request is not accounted for")
    return faults


def play_cycles(lab: LlmLab, count: int, host: str | None, seed: int) -> Iterator[Cycle]:
    """In a process on the unit's own host, or in one here."""
    words = [sys.executable, "-m", "tests.lab.unit_cycles", "--seed", str(seed), str(count), lab.base_url]
    inside = ["env", "-C", str(CHECKOUT), f"PYTHONPATH={CHECKOUT / 'src'}", *words]
    here: list[str] = [*words, host] if host is not None else lab.machine.inside(inside)
    with subprocess.Popen(here, cwd=CHECKOUT, env=lab.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Cycle(**json.loads(line))
    assert process.returncode == 0


def main() -> None:
    """Cycle, a line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("url")
    parser.add_argument("host", nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for each in cycles(options.count, options.url, options.host, options.seed):
        print(json.dumps(asdict(each)), flush=True)


if __name__ == "__main__":
    main()
