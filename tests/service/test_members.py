"""Several members as one: order, identity, and what one of them does to the others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from draftmark.errors import BusyError, HostError, MeasuringError
from draftmark.model import Hand, Identity, Intervention, StopOutcome, StopReport
from draftmark.ports import CpuSample
from draftmark.service.interlock import Interlock
from draftmark.service.members import MembersSupervisor


@dataclass
class One:
    """A member that notes what is asked of it."""

    name: str
    events: list[str]
    original: tuple[str, ...] = ("server", "--depth", "1")
    running: bool = False
    code: int | None = None
    outcome: StopOutcome = StopOutcome.CLEAN
    busy: int = 0
    changed: tuple[str, ...] = ()
    hand: Intervention | None = None
    interlock: Interlock = field(default_factory=Interlock)

    def start(self, command: Sequence[str], log: Path) -> Identity:
        self.events.append(f"start {self.name} {' '.join(command)} > {log.name}")
        self.running = True
        return Identity(pid=1, started_ticks=1, invocation=self.name)

    def identity(self) -> Identity | None:
        return Identity(pid=1, started_ticks=1, invocation=self.name) if self.running else None

    def exit_code(self) -> int | None:
        return self.code

    @property
    def altered(self) -> tuple[str, ...]:
        return self.changed

    def heed(self) -> Intervention | None:
        self.events.append(f"heed {self.name}")
        return self.hand

    def gather_log(self) -> None:
        self.events.append(f"log {self.name}")

    def measuring(self) -> AbstractContextManager[None]:
        return self.interlock.measuring()

    def look(self) -> None:
        self.events.append(f"look {self.name}")

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        self.interlock.check("a stop")
        if self.busy and not force:
            self.busy -= 1
            raise BusyError("a new connection")
        self.events.append(f"stop {self.name}{' by force' if force else ''}")
        self.running = False
        return StopReport(outcome=self.outcome, signals=("SIGTERM",), seconds=1.0, exit_code=self.code)

    def keep(self, command: Sequence[str]) -> None:
        self.events.append(f"keep {self.name} {' '.join(command)}")

    def restore(self, *, force: bool = False) -> bool:
        self.events.append(f"restore {self.name}")
        return True

    def check(self) -> None:
        self.events.append(f"check {self.name}")

    def await_host(self, error: HostError) -> None:
        self.events.append(f"await {self.name}")

    def commands(self) -> list[tuple[str, ...]]:
        return [self.original]

    def cpu(self) -> CpuSample | None:
        return None


def follow(original: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    return (*original[:-1], command[-1])


@pytest.fixture
def events() -> list[str]:
    return []


def members(events: list[str], count: int = 3) -> tuple[MembersSupervisor, list[One]]:
    ones = [One(f"r{rank}", events, original=("server", f"--rank={rank}", "--depth", "1")) for rank in range(count)]
    return MembersSupervisor(ones, follow), ones


def test_started_in_rank_order_each_with_the_arm_of_its_own_line(events: list[str], tmp_path: Path) -> None:
    service, _ = members(events)
    identity = service.start(("server", "--rank=0", "--depth", "4"), tmp_path / "server.log")
    assert events == [
        "start r0 server --rank=0 --depth 4 > server.log",
        "start r1 server --rank=1 --depth 4 > server.rank1.log",
        "start r2 server --rank=2 --depth 4 > server.rank2.log",
    ]
    assert identity.invocation == "r0+r1+r2"
    assert service.original == ("server", "--rank=0", "--depth", "1")


def test_one_that_died_is_the_death_of_all(events: list[str], tmp_path: Path) -> None:
    service, ones = members(events)
    service.start(service.original, tmp_path / "server.log")
    ones[1].running, ones[1].code = False, -9
    assert service.identity() is None
    assert service.exit_code() == -9


def test_a_restarted_member_is_another_identity(events: list[str], tmp_path: Path) -> None:
    service, ones = members(events)
    before = service.start(service.original, tmp_path / "server.log")
    ones[2].name = "again"
    assert service.identity() != before


def test_stopped_in_reverse_and_the_worst_end_counts(events: list[str]) -> None:
    service, ones = members(events)
    ones[1].outcome = StopOutcome.KILLED
    report = service.stop()
    assert events[-1].startswith("stop r0")
    assert set(events) == {"stop r2 by force", "stop r1 by force", "stop r0"}
    assert report.outcome is StopOutcome.KILLED


def test_a_request_that_slips_in_is_told(events: list[str]) -> None:
    service, ones = members(events)
    ones[0].busy = 1
    report = service.stop()
    assert "stop r0 by force" in events
    assert "a request came in" in str(report.because)


def test_a_single_member_is_not_stopped_when_it_is_busy(events: list[str]) -> None:
    service, ones = members(events, 1)
    ones[0].busy = 1
    with pytest.raises(BusyError):
        service.stop()
    assert events == []


def test_none_is_stopped_under_a_measurement(events: list[str]) -> None:
    service, _ = members(events)
    with service.measuring(), pytest.raises(MeasuringError):
        service.stop(force=True)
    assert events == []
    service.stop()


def test_put_back_in_rank_order_after_a_stop_in_reverse(events: list[str]) -> None:
    service, _ = members(events)
    assert service.restore()
    assert events[-3:] == ["restore r0", "restore r1", "restore r2"]


def test_kept_each_with_its_own_line(events: list[str]) -> None:
    service, _ = members(events, 2)
    service.keep(("server", "--rank=0", "--depth", "4"))
    assert events == ["keep r0 server --rank=0 --depth 4", "keep r1 server --rank=1 --depth 4"]


def test_what_others_do_to_one_is_done_to_the_service_and_each_is_asked(events: list[str]) -> None:
    service, ones = members(events)
    assert service.heed() is None
    assert not service.altered
    ones[0].hand = Intervention(Hand.RESTARTED, "somebody else has restarted r0", "a line")
    ones[2].hand = Intervention(Hand.STOPPED, "somebody else has stopped r2", "a line")
    ones[1].changed = ("/etc/r1.conf was changed",)
    assert service.heed() is ones[2].hand  # a stop ends the run, a restart does not
    assert events == [f"heed r{rank}" for rank in (0, 1, 2)] * 2
    assert service.altered == ("/etc/r1.conf was changed",)
