"""Arrivals that gather: how long they may, what ends it, and that nothing else of the event loop suffers."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import threading
from collections.abc import Callable
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.load import connection as connection_module
from draftmark.load import gathering
from draftmark.load.connection import Connection
from draftmark.load.gathering import Arrivals, GatheringSelector, LoadLoop, Pace, arrivals_in
from draftmark.load.http1 import Exchange

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the loop of loads is Linux's")
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def seen(pace: Pace, gap_s: float, times: int = 200) -> float:
    for _ in range(times):
        pace.gap(gap_s)
    return pace.patience_s


def test_patience_is_a_small_part_of_the_gaps() -> None:
    assert seen(Pace(), 0.008) == pytest.approx(0.002, rel=0.01)
    assert seen(Pace(), 0.040) == gathering.MOST_S


def test_it_goes_at_once_where_gaps_get_short_and_comes_slowly() -> None:
    pace = Pace()
    assert seen(pace, 0.020, 1) < 0.0003
    seen(pace, 0.020)
    assert seen(pace, 0.0, 8) < 0.0001


def test_short_answers_are_not_kept_waiting() -> None:
    pace = Pace()
    pace.answer(0.04)
    assert seen(pace, 0.020) == pytest.approx(0.0001)
    pace.answer(0.004)
    assert pace.patience_s < 0.0001
    assert pace.sweep_s < 0.001


def test_without_the_kernel_s_stamps_nothing_may_wait() -> None:
    pace = Pace()
    pace.stamped = False
    assert seen(pace, 0.020) == 0.0


@given(
    st.lists(
        st.one_of(st.tuples(st.just("gap"), st.floats(-0.01, 1)), st.tuples(st.just("answer"), st.floats(-0.01, 9)))
    )
)
def test_patience_has_its_bounds(told: list[tuple[str, float]]) -> None:
    pace = Pace()
    longest = 0.0
    for what, seconds in told:
        if what == "gap":
            longest = max(longest, seconds)
            pace.gap(seconds)
        else:
            pace.answer(seconds)
        assert 0.0 <= pace.patience_s <= min(gathering.MOST_S, longest / 4 + 1e-12)
        assert 0.0 <= pace.sweep_s <= gathering.SWEEP_S


@linux
@pytest.mark.parametrize(
    ("timeout", "due_in", "slept"),
    [(None, None, 0.002), (1.0, None, 0.002), (0.001, None, 0.001), (0.0, None, None), (None, 0.0005, 0.0005)],
)
def test_a_timer_or_an_alarm_is_not_slept_through(
    timeout: float | None, due_in: float | None, slept: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(gathering, "sleep", waits.append)
    selector = GatheringSelector()
    near, far = socket.socketpair()
    with near, far:
        selector.register(near, 1)
        far.send(b"x")
        selector.pace.patience_s = 0.002
        if due_in is not None:
            selector.pace.due_at = monotonic() + due_in
        assert [key.fileobj for key, _ in selector.select(timeout)] == [near]
    selector.close()
    assert waits == ([] if slept is None else [pytest.approx(slept, abs=0.0005)])
    assert all(wait <= slept for wait in waits if slept is not None)


@linux
def test_what_is_due_goes_before_arrivals_and_never_keeps_them_waiting_for_long() -> None:
    selector = GatheringSelector()
    due, other = socket.socketpair()
    stream, server = socket.socketpair()
    read: list[bytes] = []
    with due, other, stream, server:
        selector.register(due, 1)
        selector.watch(stream.fileno(), lambda: read.append(b"read"))
        server.send(b"x")
        other.send(b"x")  # and is never fetched: always ready
        seen = [(bool(selector.select(0)), len(read)) for _ in range(10)]
    selector.close()
    assert all(ready for ready, _ in seen)
    assert [calls for _, calls in seen] == [0, 0, 0, 0, 1, 1, 1, 1, 1, 2]


@linux
def test_all_else_of_the_loop_works_beside_it() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoadLoop)
        loop.gathering.pace.patience_s = 0.002
        near, far = socket.socketpair()
        near.setblocking(False)
        called = loop.create_future()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(called.set_result, "called"))
        with near, far:
            thread.start()
            far.send(b"read")
            out: list[object] = [await loop.sock_recv(near, 9), await called]
            thread.join()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(near, 9), 0.01)
        return out

    with asyncio.Runner(loop_factory=LoadLoop) as runner:
        assert runner.run(main()) == [b"read", "called"]


@linux
@pytest.mark.parametrize("factory", [LoadLoop, asyncio.SelectorEventLoop])
def test_a_stream_faster_than_any_model_is_read_in_sweeps_until_it_ends(
    factory: type[LoadLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []
    sweep = Arrivals.sweep

    def noted(arrivals: Arrivals, fd: int, readable: Callable[[], None]) -> None:
        swept.append(fd)
        sweep(arrivals, fd, readable)

    monkeypatch.setattr(Arrivals, "sweep", noted)
    lump = b"1\r\na\r\n" * 100  # 100 chunks a read: 8 reads of them need not take less than 0.8 s to be quick

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        near.setblocking(False)
        connection, exchange = Connection(near), Exchange()
        arrivals = arrivals_in(asyncio.get_running_loop())
        with far:
            for _ in range(2):  # the second request finds it as the first did
                sending = asyncio.create_task(connection.send(b"GET / HTTP/1.1\r\n\r\n", exchange, 20.0))
                await asyncio.sleep(0)
                assert not arrivals._swept
                swept.clear()
                far.sendall(HEAD)
                sent = 0
                while not swept:
                    far.sendall(lump)
                    sent += 100
                    await asyncio.sleep(0.001)
                far.sendall(lump + b"0\r\n\r\n")
                await sending
                assert (exchange.framed, exchange.failure) == (True, None)
                assert sum(len(data) for _, data in exchange.reads) == sent + 100
                assert not arrivals._swept
                exchange = Exchange()
        connection.abort()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@linux
@pytest.mark.parametrize(("bytes_a_chunk", "swept"), [(100, True), (9000, False)])
def test_a_stream_that_would_pile_up_is_read_as_it_comes(bytes_a_chunk: int, swept: bool) -> None:
    async def main() -> bool:
        near, far = socket.socketpair()
        with far:
            connection = Connection(near)
            connection._framing.expect(Exchange())
            connection._framing.feed(0.0, HEAD)
            piece = b"%x\r\n%b\r\n" % (bytes_a_chunk, b"a" * bytes_a_chunk)
            connection._room = memoryview(piece)
            connection._block_at = connection._last_at = 100.0
            for i in range(8):
                connection._take(100.0 + (i + 1) * 0.0005, len(piece))
            was = connection._swept
            connection.abort()
        return was

    with asyncio.Runner(loop_factory=LoadLoop) as runner:
        assert runner.run(main()) is swept


@linux
def test_stamps_that_go_back_make_no_patience_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do behind one that was too old to be trusted: the time of its read stood for it."""
    waited = itertools.cycle([0.0, 0.009, 0.0])
    monkeypatch.setattr(connection_module, "waited_s", lambda notes: next(waited))

    async def main() -> list[float]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        near.setblocking(False)
        connection, exchange = Connection(near), Exchange()
        pace = arrivals_in(asyncio.get_running_loop()).pace
        patience = []
        with far:
            sending = asyncio.create_task(connection.send(b"GET / HTTP/1.1\r\n\r\n", exchange, 20.0))
            await asyncio.sleep(0)
            far.sendall(HEAD)
            for _ in range(40):
                far.sendall(b"1\r\na\r\n")
                await asyncio.sleep(0.003)
                patience.append(pace.patience_s)
            far.sendall(b"0\r\n\r\n")
            await sending
        times = [at for at, _ in exchange.reads]
        assert times == sorted(times)
        connection.abort()
        return patience

    with asyncio.Runner(loop_factory=LoadLoop) as runner:
        assert min(runner.run(main())) >= 0.0


@linux
def test_a_stream_that_slows_down_is_watched_again() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            near = socket.create_connection(listener.getsockname())
            far, _ = listener.accept()
        near.setblocking(False)
        connection, exchange = Connection(near), Exchange()
        arrivals = arrivals_in(asyncio.get_running_loop())
        with far:
            sending = asyncio.create_task(connection.send(b"GET / HTTP/1.1\r\n\r\n", exchange, 20.0))
            await asyncio.sleep(0)
            far.sendall(HEAD)
            while not arrivals._swept:
                far.sendall(b"1\r\na\r\n" * 100)
                await asyncio.sleep(0.001)
            while arrivals._swept:  # a sweep that finds nothing
                await asyncio.sleep(0.01)
            far.close()
            await sending
        assert exchange.failure is not None
        assert exchange.failure.kind in {"closed", "reset"}

    with asyncio.Runner(loop_factory=LoadLoop) as runner:
        runner.run(main())
