"""The load generator's own lag: pauses of the whole process are found and not averaged away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from draftmark.load.health import LagProbe
from draftmark.model import ClientHealth

PROBED = """
import asyncio, dataclasses, json, sys
from draftmark.load.health import LagProbe

async def main():
    probe = LagProbe()
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps(dataclasses.asdict(probe.stop())), flush=True)

asyncio.run(main())
"""


def with_pauses(*pauses_s: float, wake_after: bool = True) -> ClientHealth:
    """What a probe says whose clock jumps ahead, as it does for a process that was stopped."""

    async def main() -> ClientHealth:
        loop, ahead = asyncio.get_running_loop(), 0.0
        real = loop.time
        loop.time = lambda: real() + ahead  # type: ignore[method-assign]
        probe = LagProbe()
        for pause in pauses_s:
            await asyncio.sleep(0.05)
            ahead += pause
        if wake_after:
            await asyncio.sleep(0.05)
        return probe.stop()

    return asyncio.run(main())


@pytest.mark.parametrize("wake_after", [True, False])
def test_a_stop_of_three_seconds_is_seen_as_such(wake_after: bool) -> None:
    health = with_pauses(3.0, wake_after=wake_after)
    assert health.loop_lag_ms_max == pytest.approx(3000, abs=200)
    assert health.loop_pauses_ms == pytest.approx(3000, abs=300)


def test_pauses_add_up_and_the_longest_is_kept() -> None:
    health = with_pauses(0.5, 2.0, 0.5)
    assert health.loop_lag_ms_max == pytest.approx(2000, abs=200)
    assert health.loop_pauses_ms == pytest.approx(3000, abs=400)


def test_a_process_that_is_really_stopped() -> None:
    command = [sys.executable, "-c", PROBED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        begin = time.monotonic()
        time.sleep(0.8)
        stopped_ms = (time.monotonic() - begin) * 1e3
        os.kill(child.pid, signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.flush()
        said = json.loads(child.stdout.readline())
    assert said["loop_lag_ms_max"] >= stopped_ms - 30  # less what was left of the probe's own interval
    assert said["loop_lag_ms_max"] < stopped_ms + 1000
    assert said["loop_pauses_ms"] >= said["loop_lag_ms_max"]
    assert said["loop_lag_ms_p99"] is not None
