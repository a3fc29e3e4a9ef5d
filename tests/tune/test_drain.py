"""A service is stopped when it is idle, and what others do is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from draftmark.errors import BusyError, MeasuringError, RefusedError, UnrestoredError
from draftmark.model import Activity, Arm, Counters, Foreign, Health, StopOutcome, StopReport
from draftmark.testing.fakes import FakeClient, FakeClock, FakeEngine, FakeSupervisor, FakeWorld
from draftmark.tune.closing import Ends
from draftmark.tune.drain import Drain
from draftmark.tune.foreign import Watch
from draftmark.tune.startup import Starter, as_it_stands


@dataclass
class Server(FakeClient):
    """What is inside it, by the clock."""

    world: FakeWorld
    inside: Callable[[float], int | None] = lambda _now: 0
    tokens: Callable[[float], int | None] = lambda _now: None
    state: Health = Health.READY

    def __post_init__(self) -> None:
        super().__init__(self.world)

    def activity(self) -> Activity:
        return Activity(running=self.inside(self.world.clock.now_s), queued=None)

    def counters(self) -> Counters:
        return Counters(output_tokens=self.tokens(self.world.clock.now_s))

    def health(self) -> Health:
        return self.state


@dataclass
class Supervised(FakeSupervisor):
    """Says busy so many times: a request came in between the look and the stop."""

    world: FakeWorld
    late_requests: int = 0
    ran_before: bool = True
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.world)
        self.world.running = Arm(0)

    def look(self) -> None:
        self.calls.append("look")

    def stop(self, *, hurry: bool = False, force: bool = False) -> StopReport:
        self._end(force)
        return super().stop(hurry=hurry, force=force)

    def restore(self, *, force: bool = False) -> bool:
        self._end(force)
        return self.ran_before

    def _end(self, force: bool) -> None:
        self.calls.append("force" if force else "end")
        if not force and self.late_requests:
            self.late_requests -= 1
            raise BusyError("a request came in")


def speed(_arm: Arm, _workload: str, _concurrency: int) -> float:
    return 100.0


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld(truth_tok_s=speed)


def drain(
    supervisor: FakeSupervisor, clock: FakeClock, foreign: Foreign = Foreign.ABORT, timeout_s: float = 60
) -> Drain:
    return Drain(supervisor=supervisor, clock=clock, timeout_s=timeout_s, foreign=foreign)


def test_requests_in_flight_are_awaited(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    report = drain(supervisor, world.clock).stop(Server(world, inside=lambda now: 3 if now < 7 else 0))
    assert report.outcome is StopOutcome.CLEAN
    assert report.waited_s is not None
    assert 7 <= report.waited_s < 7.5
    assert report.in_flight == 0
    assert supervisor.calls[-2:] == ["look", "end"]  # looked before the engine was asked for the last time


def test_a_request_that_comes_in_at_the_last_moment_is_awaited_too(world: FakeWorld) -> None:
    supervisor = Supervised(world, late_requests=4)
    drain(supervisor, world.clock).stop(Server(world))
    assert supervisor.calls == ["look", "end"] * 5


@pytest.mark.parametrize("foreign", [Foreign.ABORT, Foreign.WAIT])
def test_a_service_that_others_keep_busy_is_not_stopped(world: FakeWorld, foreign: Foreign) -> None:
    supervisor = Supervised(world)
    with pytest.raises(BusyError, match="does not become idle") as caught:
        drain(supervisor, world.clock, foreign).stop(Server(world, inside=lambda _now: 2))
    assert "2 requests in flight after 60 s" in caught.value.evidence[0]
    assert "force" not in supervisor.calls
    assert "end" not in supervisor.calls


def test_others_can_be_ignored_when_the_time_is_up(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    report = drain(supervisor, world.clock, Foreign.IGNORE).stop(Server(world, inside=lambda _now: 2))
    assert (supervisor.calls[-1], report.in_flight) == ("force", 2)


def test_a_server_that_does_not_answer_any_more_is_stopped(world: FakeWorld) -> None:
    supervisor = Supervised(world, late_requests=10**6)
    drain(supervisor, world.clock).stop(Server(world, inside=lambda _now: None, state=Health.UNREACHABLE))
    assert supervisor.calls[-1] == "force"


def test_a_server_that_never_became_ready_has_no_requests(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    drain(supervisor, world.clock).stop(None)
    assert supervisor.calls == ["force"]


def test_an_engine_that_does_not_say_leaves_it_to_the_supervisor(world: FakeWorld) -> None:
    supervisor = Supervised(world, late_requests=1)
    report = drain(supervisor, world.clock).stop(Server(world, inside=lambda _now: None))
    assert (supervisor.calls, report.in_flight) == (["look", "end"] * 2, None)


def test_who_leaves_waits_a_few_seconds_only(world: FakeWorld) -> None:
    began = world.clock.now_s
    with pytest.raises(BusyError):
        drain(Supervised(world), world.clock).stop(Server(world, inside=lambda _now: 1), hurry=True)
    assert world.clock.now_s - began < 6


def test_a_changed_service_is_put_back_even_when_others_keep_it_busy(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    assert drain(supervisor, world.clock).restore(Server(world, inside=lambda _now: 1))
    assert supervisor.calls[-1] == "force"


def test_nothing_stops_it_under_a_measurement(world: FakeWorld) -> None:
    supervisor = FakeSupervisor(world)
    world.running = Arm(0)
    with supervisor.measuring(), pytest.raises(MeasuringError):
        drain(supervisor, world.clock, Foreign.IGNORE).stop(Server(world), hurry=True)
    assert supervisor.identity() is not None


# --- others' requests -------------------------------------------------------------------------------------


def test_others_are_seen_by_their_requests_or_their_tokens(world: FakeWorld) -> None:
    watch = Watch(clock=world.clock)
    assert watch.seen(Server(world)) is None
    assert watch.seen(Server(world, tokens=lambda _now: 500)) is None
    assert watch.seen(Server(world, inside=lambda _now: 1)) == "1 request in flight that is not ours"
    assert "2 requests" in str(watch.seen(Server(world, inside=lambda now: 2 if now % 1 > 0.5 else 0)))
    assert "put out" in str(watch.seen(Server(world, tokens=lambda now: int(now * 100))))


def test_waiting_for_others_ends_when_they_are_done(world: FakeWorld) -> None:
    server = Server(world, inside=lambda now: 1 if now < 20 else 0)
    assert Watch(clock=world.clock).settled(server) is not None
    assert Watch(clock=world.clock, policy=Foreign.WAIT, patience_s=5).settled(server) is not None
    assert Watch(clock=world.clock, policy=Foreign.WAIT, patience_s=60).settled(server) is None
    busy = Server(world, inside=lambda _now: 9)
    assert Watch(clock=world.clock, policy=Foreign.IGNORE).settled(busy) is None


# --- the two ends of a run --------------------------------------------------------------------------------


def ends(supervisor: FakeSupervisor, world: FakeWorld, server: Server, watch: Watch | None = None) -> Ends:
    engine = FakeEngine(world)
    engine.client = lambda _url, _headers: server  # type: ignore[method-assign,assignment]
    starter = Starter(
        engine=engine, supervisor=supervisor, clock=world.clock, port_holder=lambda _url: None, timeout_s=60
    )
    return Ends(
        engine=engine,
        supervisor=supervisor,
        drain=drain(supervisor, world.clock),
        clock=world.clock,
        starter=starter,
        watch=watch,
        reach=as_it_stands,
        ready_s=30,
        on_wait=lambda _what, _limit: None,
        look=("journalctl -u llm.service",),
    )


def test_a_service_in_use_is_not_touched(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    server = Server(world, inside=lambda _now: 1)
    with pytest.raises(RefusedError, match="others use the service"):
        ends(supervisor, world, server, Watch(clock=world.clock)).vacate()
    assert supervisor.calls == []


def test_what_runs_already_is_stopped_and_what_does_not_is_left(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    report = ends(supervisor, world, Server(world), Watch(clock=world.clock)).vacate()
    assert report is not None
    assert report.outcome is StopOutcome.CLEAN
    assert ends(supervisor, world, Server(world)).vacate() is None


def test_the_original_has_to_serve_again(world: FakeWorld) -> None:
    supervisor = Supervised(world)
    assert ends(supervisor, world, Server(world)).put_back(hurry=False)
    with pytest.raises(UnrestoredError, match="does not serve") as caught:
        ends(supervisor, world, Server(world, state=Health.LOADING)).put_back(hurry=False)
    assert caught.value.next_step == "journalctl -u llm.service"
    supervisor.ran_before = False
    assert not ends(supervisor, world, Server(world, state=Health.UNREACHABLE)).put_back(hurry=False)


def test_what_is_kept_runs_when_it_is_kept(world: FakeWorld, tmp_path: Path) -> None:
    supervisor = FakeSupervisor(world)
    ends(supervisor, world, Server(world)).keep(Arm(4), tmp_path / "server.log")
    assert supervisor.kept == FakeEngine(world).with_arm(supervisor.original, Arm(4))
    assert world.running == Arm(4)


def test_what_cannot_be_kept_does_not_stay(
    world: FakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = FakeSupervisor(world)

    def full(_self: FakeSupervisor, _command: object) -> None:
        raise RefusedError("the disk is full")

    monkeypatch.setattr(FakeSupervisor, "keep", full)
    with pytest.raises(RefusedError, match="the disk is full"):
        ends(supervisor, world, Server(world)).keep(Arm(4), tmp_path / "server.log")
    assert world.running is None
