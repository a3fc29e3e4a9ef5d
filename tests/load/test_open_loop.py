"""The open loop against scripted servers. Against the reference emitter's stall: test_streamlab_open.py."""

from __future__ import annotations

import asyncio
import socket
import time
from itertools import pairwise

import pytest

from draftmark.load.open_loop import HELD_BACK
from draftmark.load.plan import Stop
from draftmark.load.punctuality import Alarm, Punctuality
from draftmark.model import ClientHealth

from .driving import carry_out, measured, plan, prompts
from .scripted import Request, Wire, answer, delta, serving


def times(count: int, gap_s: float) -> tuple[float, ...]:
    return tuple(i * gap_s for i in range(count))


def test_requests_go_out_at_their_times_whatever_became_of_the_others() -> None:
    """The first answer lasts longer than the whole schedule."""

    async def script(wire: Wire, request: Request) -> None:
        await answer(("a", "b"), gap_s=0.4 if request.body["user"] == "bench-1" else 0.001)(wire, request)

    at = times(20, 0.03)
    with serving(script) as server:
        run = carry_out(server.url, plan(prompts(3), send_at_s=at))
    records = measured(run)
    assert [r.tag for r in records] == [f"bench-{n}" for n in range(1, 21)]
    assert [r.intended_at_s for r in records] == pytest.approx(at)
    assert records[0].end_at_s > records[-1].sent_at_s
    assert all(r.intended_at_s is not None and r.sent_at_s >= r.intended_at_s for r in records)
    # late once is not late for ever: what came after a late one is not shifted by it
    assert min(r.sent_at_s - (r.intended_at_s or 0.0) for r in records[10:]) < 0.03
    assert run.disturbed == ()
    assert run.client.send_late_ms_p99 is not None
    assert run.client.send_late_ms_max is not None


def test_connections_are_kept_for_the_next_and_opened_where_none_is_free() -> None:
    with serving(answer(("a",))) as server:
        run = carry_out(server.url, plan(send_at_s=times(8, 0.05)))
        assert server.connections == 1
    assert [r.connect_s is None for r in measured(run)] == [False] + [True] * 7

    with serving(answer(("a",), gap_s=0.3)) as server:
        run = carry_out(server.url, plan(send_at_s=(0.0, 0.0, 0.0, 1.0)))
        assert server.connections == 3
    assert [r.connect_s is None for r in measured(run)] == [False, False, False, True]


def test_opening_a_connection_is_in_the_time_from_the_intended_send_and_not_in_the_plain_one() -> None:
    with serving(answer(("a",))) as server:
        run = carry_out(server.url, plan(send_at_s=(0.0,)))
    (record,) = run.records
    assert record.connect_s is not None
    assert record.intended_at_s is not None
    assert record.sent_at_s - record.intended_at_s >= record.connect_s


def test_with_a_limit_a_request_waits_for_a_slot_and_keeps_its_intended_time() -> None:
    under_way = most = 0

    async def script(wire: Wire, request: Request) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await answer(("a",), gap_s=0.1)(wire, request)
        under_way -= 1

    with serving(script) as server:
        run = carry_out(server.url, plan(send_at_s=(0.0,) * 6, concurrency=2))
    records = measured(run)
    assert most == 2
    assert [r.tag for r in records] == [f"bench-{n}" for n in range(1, 7)]  # in the order of their times
    assert [r.intended_at_s for r in records] == pytest.approx([0.0] * 6)
    waited = [r.sent_at_s - (r.intended_at_s or 0.0) for r in records]
    assert waited[-1] > 0.19
    assert {r.concurrency for r in records} == {2}
    assert run.client.send_late_ms_max is not None
    assert run.client.send_late_ms_max < 150  # waiting for a slot is not the client's lateness
    assert run.disturbed == ()


def test_the_warm_up_is_sent_before_the_begin_and_not_waited_for() -> None:
    async def script(wire: Wire, request: Request) -> None:
        await answer(("a", "b"), gap_s=0.3 if request.body["user"] == "bench-1" else 0.001)(wire, request)

    with serving(script) as server:
        run = carry_out(server.url, plan(send_at_s=times(5, 0.04), warmup=2))
    warm = [r for r in run.records if r.warmup]
    assert sorted(r.intended_at_s or 0.0 for r in warm) == pytest.approx([-0.08, -0.04])
    slow = next(r for r in warm if r.tag == "bench-1")
    assert slow.sent_at_s < 0 < measured(run)[-1].sent_at_s < slow.end_at_s


async def hang(wire: Wire, request: Request) -> None:
    wire.stream()
    await wire.event(delta("a"))
    await wire.until_left()


def test_at_the_limit_of_time_what_was_under_way_is_cut_and_the_rest_is_told_with_its_reason() -> None:
    with serving(hang) as server:
        run = carry_out(server.url, plan(send_at_s=times(30, 0.05), concurrency=3, max_seconds=0.5))
    assert [r.error for r in run.records] == ["cut"] * 3
    assert [len(r.chunks) for r in run.records] == [1] * 3
    assert run.stopped_because == "the limit of 0.5 s was reached"
    assert run.unsent.keys() == {HELD_BACK, "the limit of 0.5 s was reached"}
    assert run.unsent[HELD_BACK] >= 4


@pytest.mark.parametrize("opened", [True, False])
def test_stopped_by_the_caller_it_brings_what_was_measured(opened: bool) -> None:
    async def script(wire: Wire, request: Request) -> None:
        await (hang if request.body["user"] == "bench-3" else answer(("a",), gap_s=0.01))(wire, request)

    stop = Stop()
    wanted = (
        plan(prompts(500), send_at_s=times(500, 0.02))
        if opened
        else plan(prompts(500), concurrency=2, think_s=(0.01,))
    )

    def on_record(record: object) -> None:
        seen.append(record)
        if len(seen) == 6:
            stop.request("interrupted by SIGINT")

    seen: list[object] = []
    begin = time.monotonic()
    with serving(script) as server:
        run = carry_out(server.url, wanted, stop=stop, on_record=on_record)
    assert time.monotonic() - begin < 5
    assert run.stopped_because == "interrupted by SIGINT"
    assert tuple(seen) == run.records
    assert next(r for r in run.records if r.tag == "bench-3").error == "cut"
    assert [r.error for r in run.records].count(None) >= 6
    assert run.unsent.keys() == {"interrupted by SIGINT"}


def test_stopped_before_anything_was_sent() -> None:
    stop = Stop()
    stop.request("interrupted")
    with serving(answer()) as server:
        run = carry_out(server.url, plan(send_at_s=(0.0, 0.1)), stop=stop)
    assert (run.records, run.unsent) == ((), {"interrupted": 2})


def test_a_gate_says_when_it_begins() -> None:
    async def gate() -> float:
        return begun + 0.3

    with serving(answer(("a",))) as server:
        begun = time.monotonic()
        run = carry_out(server.url, plan(send_at_s=(0.0, 0.01)), gate=gate)
        assert time.monotonic() - begun > 0.3
    assert measured(run)[0].intended_at_s == pytest.approx(0.0)


def test_a_dead_server_ends_an_open_loop_too() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    run = carry_out(f"http://127.0.0.1:{port}", plan(send_at_s=times(500, 0.002), max_errors=5))
    assert run.stopped_because is not None
    assert "5 requests in a row" in run.stopped_because
    assert {r.error for r in run.records} <= {"connect-refused", "cut"}
    assert sum(run.unsent.values()) > 400


def test_a_client_that_does_not_keep_its_schedule_says_so() -> None:
    """A callback that holds the event loop up: the fault is the client's, and is named as such."""

    def on_record(record: object) -> None:
        time.sleep(0.06)

    with serving(answer(("a",))) as server:
        run = carry_out(server.url, plan(send_at_s=times(30, 0.01)), on_record=on_record)
    (words,) = run.disturbed
    assert "did not keep its schedule" in words
    assert "by its own fault" in words
    assert (run.client.send_late_ms_max or 0) > 50
    sent = [r.sent_at_s for r in measured(run)]
    assert all(a <= b for a, b in pairwise(sent))


def test_lateness_is_judged_by_its_99th_percentile() -> None:
    kept = Punctuality()
    for _ in range(1000):
        kept.note(0.0002)
    kept.note(3.0)
    assert kept.faults() == ()
    health = kept.noted_in(ClientHealth(cpu_s=1.0))
    assert health.cpu_s == 1.0
    assert health.send_late_ms_p99 == pytest.approx(0.2)
    assert health.send_late_ms_max == pytest.approx(3000)
    assert Punctuality().noted_in(ClientHealth()) == ClientHealth()
    for _ in range(20):
        kept.note(0.03)
    assert "21 of 1021 requests more than 25 ms late" in kept.faults()[0]


@pytest.mark.parametrize("kernel", [True, False])
def test_an_alarm_never_rings_early(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel:
        monkeypatch.setattr("ctypes.CDLL", lambda *a, **k: object())

    async def main() -> list[float]:
        out = []
        with Alarm() as alarm:
            begin = time.monotonic()
            for i in range(20):
                at = begin + 0.0037 * i
                await alarm.until(at)
                out.append(time.monotonic() - at)
            await asyncio.wait_for(alarm.until(begin), 1)  # long past
        return out

    assert min(asyncio.run(main())) >= 0
