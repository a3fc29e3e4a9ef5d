"""A host that is asked in a hurry."""

from __future__ import annotations

from collections.abc import Sequence

from draftmark.ports import Completed
from draftmark.service.local import LocalHost
from draftmark.service.watch.hurry import Hurried
from draftmark.testing.hosts import ScriptedHost


class Slow(ScriptedHost):
    """Each command takes as long as its first word says, or as it is given."""

    def __init__(self) -> None:
        super().__init__({})
        self.now = 0.0

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in the port
        timeout_s: float = 20.0,
        limit_bytes: int = 8 << 20,
    ) -> Completed:
        wanted = float(argv[0])
        self.now += min(wanted, timeout_s)
        return Completed(None, timed_out=True) if wanted > timeout_s else Completed(0)


def test_time_is_given_out_until_it_is_gone() -> None:
    host = Slow()
    hurried = Hurried(host, each_s=2, all_s=5, monotonic=lambda: host.now)
    assert hurried.run(["1"]).ok
    assert not hurried.missed
    assert hurried.run(["60"]).timed_out
    assert hurried.missed
    assert hurried.run(["1.5"]).ok
    assert hurried.run(["2"]).timed_out
    assert host.now == 5
    assert hurried.run(["0"]).timed_out, "not even begun"


def test_who_is_slow_by_his_own_limit_misses_nothing() -> None:
    host = Slow()
    hurried = Hurried(host, each_s=2, all_s=5, monotonic=lambda: host.now)
    assert hurried.run(["3"], timeout_s=1).timed_out
    assert not hurried.missed


def test_a_stream_has_the_time_that_is_left() -> None:
    hurried = Hurried(LocalHost(), each_s=9, all_s=0.2)
    stream = hurried.stream(["sh", "-c", "echo first; sleep 60"])
    assert list(stream) == [b"first\n"]
    assert stream.close().timed_out
    assert hurried.missed


def test_it_is_the_host_otherwise() -> None:
    host = ScriptedHost({}, {"/x": b"content"}, name="gpu7", is_root=False)
    hurried = Hurried(host, each_s=1, all_s=1)
    assert (hurried.name, hurried.is_root, hurried.read("/x", 4)) == ("gpu7", False, b"cont")
    assert hurried.reach("127.0.0.1", 80) == ("127.0.0.1", 80)
