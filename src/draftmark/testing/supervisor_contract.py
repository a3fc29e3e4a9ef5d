"""What every Supervisor must do, as tests: subclass `SupervisorContract`, give `make_supervisor`, and collect it.

The tests start real processes (`draftmark.testing.programs`) and look for what is left of them in /proc, so they
hold for a supervisor that runs its service on this computer.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftmark.errors import RefusedError, StartError
from draftmark.model import Identity, StopOutcome
from draftmark.ports import Supervisor
from draftmark.testing import programs

_PATIENCE_S = 10.0


def eventually(condition: Callable[[], object], seconds: float = _PATIENCE_S) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


class Bench:
    """One supervisor under test, its log, and the tag that its processes carry."""

    def __init__(self, supervisor: Supervisor, log: Path, tag: str) -> None:
        self.supervisor = supervisor
        self.log = log
        self.tag = tag

    def start(self, manner: str, *arguments: str) -> Identity:
        """Start a program and wait for its `ready`."""
        before = self.lines().count("ready")
        identity = self.supervisor.start(programs.command(manner, self.tag, *arguments), self.log)
        assert eventually(lambda: self.lines().count("ready") > before), self.lines()
        return identity

    def lines(self) -> list[str]:
        """The log so far."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def left(self) -> list[int]:
        """Processes that carry the tag."""
        return programs.processes(self.tag)

    def ended(self) -> bool:
        """Whether the main process ends by itself in time."""
        return eventually(lambda: self.supervisor.identity() is None)


class SupervisorContract:
    """Tests. The graces are short, for the programs answer at once or never."""

    grace_s = 2.0  # a busy machine takes over half a second to run a handler
    second_grace_s = 0.5

    def make_supervisor(self, original: tuple[str, ...]) -> Supervisor:
        """A supervisor for `original` whose graces are `grace_s` and `second_grace_s`."""
        raise NotImplementedError

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        """A supervisor; after the test not one process of it may be left."""
        tag = f"tag-{secrets.token_hex(6)}"
        supervisor = self.make_supervisor(programs.command("serve", tag))
        bench = Bench(supervisor, tmp_path / "server.log", tag)
        try:
            yield bench
        finally:
            supervisor.stop()
        assert bench.left() == []

    def test_lifecycle(self, bench: Bench) -> None:
        """Start, stay the same, stop, be nobody, start again as somebody else."""
        supervisor = bench.supervisor
        assert supervisor.original == programs.command("serve", bench.tag)
        assert supervisor.identity() is None
        assert supervisor.exit_code() is None
        assert supervisor.heed() is None
        first = bench.start("serve")
        assert first.pid in bench.left()
        assert supervisor.identity() == first
        assert supervisor.exit_code() is None
        assert supervisor.heed() is None  # what we do ourselves is nobody else's doing
        assert not supervisor.altered
        report = supervisor.stop()
        assert supervisor.heed() is None
        assert report.outcome is StopOutcome.CLEAN
        assert report.signals == ("SIGTERM",)
        assert report.exit_code == 0
        assert 0 < report.seconds < _PATIENCE_S
        assert bench.left() == []
        assert supervisor.identity() is None
        assert supervisor.exit_code() == 0
        second = bench.start("serve")
        assert second != first
        assert supervisor.identity() == second
        assert supervisor.exit_code() is None

    def test_stop_is_idempotent(self, bench: Bench) -> None:
        """A second stop, and one before any start, find nothing to do."""
        before = bench.supervisor.stop()
        assert (before.outcome, before.signals, before.exit_code) == (StopOutcome.ALREADY_DEAD, (), None)
        bench.start("serve")
        bench.supervisor.stop()
        again = bench.supervisor.stop()
        assert (again.outcome, again.signals, again.exit_code) == (StopOutcome.ALREADY_DEAD, (), 0)

    def test_ignores_sigterm(self, bench: Bench) -> None:
        """It is killed, after both graces."""
        bench.start("stubborn")
        report = bench.supervisor.stop()
        assert report.outcome is StopOutcome.KILLED
        assert report.signals == ("SIGTERM", "SIGTERM", "SIGKILL")
        assert report.exit_code == -signal.SIGKILL
        assert report.seconds >= self.grace_s + self.second_grace_s
        assert bench.left() == []

    def test_ends_at_the_second_sigterm(self, bench: Bench) -> None:
        """It is slow, and its own exit status is kept."""
        bench.start("twice")
        report = bench.supervisor.stop()
        assert report.outcome is StopOutcome.SLOW
        assert report.signals == ("SIGTERM", "SIGTERM")
        assert report.exit_code == 1
        assert report.seconds >= self.grace_s
        assert "draining" in bench.lines()
        assert bench.left() == []

    @pytest.mark.parametrize(
        ("manner", "argument", "code"),
        [("leave", "0", 0), ("leave", "7", 7), ("die", str(int(signal.SIGSEGV)), -signal.SIGSEGV)],
    )
    def test_ends_by_itself(self, bench: Bench, manner: str, argument: str, code: int) -> None:
        """The exit status says how; a stop afterwards has nothing to do."""
        bench.start(manner, argument)
        assert bench.ended()
        assert bench.supervisor.exit_code() == code
        report = bench.supervisor.stop()
        assert (report.outcome, report.signals, report.exit_code) == (StopOutcome.ALREADY_DEAD, (), code)

    def test_whole_group_is_signalled(self, bench: Bench) -> None:
        """A child in the same process group ends cleanly too."""
        bench.start("pair")
        assert len(bench.left()) == 2
        assert bench.supervisor.stop().outcome is StopOutcome.CLEAN
        assert bench.left() == []

    def test_child_that_outlives_its_parent(self, bench: Bench) -> None:
        """A child in its own session, deaf to SIGTERM, is gone when stop returns; the report says SIGKILL."""
        bench.start("family")
        assert len(bench.left()) == 2
        report = bench.supervisor.stop()
        assert bench.left() == []
        assert report.outcome is StopOutcome.KILLED
        assert report.exit_code == 0

    def test_orphan_of_a_dead_service(self, bench: Bench) -> None:
        """The main process ended by itself: nobody runs, and stop clears what it left."""
        bench.start("orphan")
        assert bench.ended()
        assert bench.supervisor.exit_code() == 3
        assert len(bench.left()) == 1
        report = bench.supervisor.stop()
        assert bench.left() == []
        assert report.outcome is StopOutcome.ALREADY_DEAD
        assert report.exit_code == 3

    def test_start_clears_an_orphan(self, bench: Bench) -> None:
        """What a dead instance left behind would hold the port: a start ends it first."""
        bench.start("orphan")
        assert bench.ended()
        (orphan,) = bench.left()
        bench.start("serve")
        assert orphan not in bench.left()

    def test_log_is_appended(self, bench: Bench) -> None:
        """Two starts, one log, in order, after what was in it."""
        bench.log.write_text("from before\n")
        for _ in range(2):
            bench.start("serve")
            bench.supervisor.stop()
        assert bench.lines() == ["from before", "ready", "leaving", "ready", "leaving"]

    def test_start_while_running_is_refused(self, bench: Bench) -> None:
        """And the one that runs is left alone."""
        identity = bench.start("serve")
        with pytest.raises(RefusedError):
            bench.supervisor.start(programs.command("serve", bench.tag), bench.log)
        assert bench.supervisor.identity() == identity
        assert bench.left() == [identity.pid]

    def test_missing_program(self, bench: Bench, tmp_path: Path) -> None:
        """A StartError that names it; nothing is left, and a start after it works."""
        missing = tmp_path / "no-such-server"
        with pytest.raises(StartError) as caught:
            bench.supervisor.start((str(missing), bench.tag), bench.log)
        assert str(missing) in caught.value.what
        assert caught.value.next_step
        assert bench.supervisor.identity() is None
        assert bench.supervisor.stop().outcome is StopOutcome.ALREADY_DEAD
        assert bench.left() == []
        bench.start("serve")
        assert bench.supervisor.stop().outcome is StopOutcome.CLEAN
