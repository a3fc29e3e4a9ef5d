"""The part that is sent to a node, without Ray: what it starts speaks, ends when told to, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmark.cluster import agent as module
from draftmark.cluster.agent import Agent

ECHO = """
import sys, pathlib, os
line = sys.stdin.readline()
print("asked", line.strip(), flush=True)
pathlib.Path(sys.argv[1], "trial.json").write_text("x" * 10)
if line.strip() == "stay":
    print(os.getpid(), flush=True)
    sys.stdin.read()
    pathlib.Path(sys.argv[2]).write_text("stopped in order")
"""
DEAF = "import sys, time, os; sys.stdin.readline(); print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Agent]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)

    def make(program: str, silence_s: float = 60.0) -> Agent:
        found = Agent(silence_s, 0)
        starter = f"import sys; sys.argv.append({str(tmp_path / 'end')!r})\n"
        monkeypatch.setattr(found, "_words", lambda: [sys.executable, "-c", starter + program])
        return found

    return make


def lines_of(agent: Agent, number: int) -> list[bytes]:
    found: list[bytes] = []
    over = False
    while len(found) < number and not over:
        more, over = agent.poll(len(found), 5.0)
        found += more
    return found


def gone(pid: int) -> bool:
    """Whether a process ends within a while; what nobody reaps is gone as well."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_trial_is_asked_speaks_and_hands_over_its_files(made: Callable[[str], Agent], tmp_path: Path) -> None:
    agent = made(ECHO)
    agent.begin(b"quick\n")
    assert lines_of(agent, 9) == [b"asked quick\n"]
    assert agent.poll(0, 1.0) == ([b"asked quick\n"], True)  # an answer that got lost
    assert agent.poll(1, 1.0) == ([], True)
    assert dict(agent.files())["trial.json"] == 10
    assert agent.read("trial.json", 4, 100) == b"x" * 6
    agent.discard()
    assert not list(tmp_path.glob("draftmark-trial-*"))


def test_told_to_end_it_ends_in_order(made: Callable[[str], Agent], tmp_path: Path) -> None:
    agent = made(ECHO)
    agent.begin(b"stay\n")
    pid = int(lines_of(agent, 2)[1])
    assert os.getsid(pid) != os.getsid(0)
    agent.discard()
    assert (tmp_path / "end").read_text() == "stopped in order"
    assert gone(pid)
    assert not list(tmp_path.glob("draftmark-trial-*"))


def test_what_does_not_listen_is_killed(
    made: Callable[[str], Agent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_STOP_S", 0.3)
    agent = made(DEAF)
    agent.begin(b"\n")
    pid = int(lines_of(agent, 1)[0])
    agent.discard()
    assert gone(pid)


def test_a_node_that_nobody_asks_any_more_ends_its_trial(made: Callable[[str], Agent], tmp_path: Path) -> None:
    agent = made(ECHO)
    agent.begin(b"stay\n")
    pid = int(lines_of(agent, 2)[1])
    agent._silence_s = 0.1
    assert gone(pid)
    assert (tmp_path / "end").read_text() == "stopped in order"


def test_a_worker_that_is_killed_takes_its_trial_with_it_in_order(tmp_path: Path) -> None:
    source = f"""
import sys, time
sys.path.insert(0, {str(Path(module.__file__).parents[2])!r})
from draftmark.cluster.agent import Agent
agent = Agent(60.0, 0)
starter = "import sys; sys.argv.append({str(tmp_path / "end")!r})\\n"
agent._words = lambda: [sys.executable, "-c", starter + {ECHO!r}]
agent.begin(b"stay\\n")
while not (found := agent.poll(1, 5.0)[0]):
    pass
print(found[0].decode().strip(), flush=True)
time.sleep(60)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    worker = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=env)
    assert worker.stdout is not None
    with worker:
        pid = int(worker.stdout.readline())
        worker.send_signal(signal.SIGKILL)
    assert gone(pid)
    assert (tmp_path / "end").read_text() == "stopped in order"


def test_the_environment_is_the_raylets_own(made: Callable[[str], Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    agent = made(ECHO)
    assert "OMP_NUM_THREADS" not in agent._env()
    with subprocess.Popen(["sleep", "30"], env={"PATH": "/bin", "OMP_NUM_THREADS": "7"}) as raylet:
        monkeypatch.setenv("RAY_RAYLET_PID", str(raylet.pid))
        while b"sleep" not in Path(f"/proc/{raylet.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        assert agent._env() == {"PATH": "/bin", "OMP_NUM_THREADS": "7"}
        agent._gpus = 2
        assert agent._env()["CUDA_VISIBLE_DEVICES"] == "2,3"
        raylet.kill()
