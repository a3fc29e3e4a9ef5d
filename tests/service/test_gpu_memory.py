from __future__ import annotations

from collections.abc import Sequence

import pytest

from draftmark.ports import Completed
from draftmark.service.gpu_memory import GpuMemory, used_mib
from draftmark.testing.fakes import FakeClock
from draftmark.testing.hosts import ScriptedHost


class Gpus(ScriptedHost):
    """nvidia-smi by the clock."""

    def __init__(self, clock: FakeClock, readings: Sequence[tuple[float, str]]) -> None:
        super().__init__({})
        self._clock = clock
        self._readings = readings

    def run(self, argv: Sequence[str], **_options: object) -> Completed:
        said = [text for at, text in self._readings if at <= self._clock.now_s]
        return Completed(0, said[-1].encode())


def quiet(_what: str, _limit_s: float | None) -> None:
    return None


def at(clock: FakeClock, *readings: tuple[float, str]) -> Gpus:
    began = clock.now_s
    return Gpus(clock, [(began + seconds, text) for seconds, text in readings])


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("0, 512\n1, 7\n", {0: 512, 1: 7}),
        ("0, [N/A]\n", None),
        ("", None),
        ("No devices were found\n", None),
    ],
)
def test_what_nvidia_smi_says(said: str, used: dict[int, int] | None) -> None:
    assert used_mib(ScriptedHost({"nvidia-smi": said})) == used


def test_no_gpu_costs_no_wait() -> None:
    clock = FakeClock()
    before = clock.now_s
    assert GpuMemory(ScriptedHost({}), clock).settle(quiet) is None
    assert clock.now_s == before


def test_the_first_stop_waits_for_a_standstill() -> None:
    clock = FakeClock()
    host = at(clock, (0, "0, 90000"), (1.2, "0, 40000"), (2.2, "0, 500"))
    began = clock.now_s
    assert GpuMemory(host, clock).settle(quiet) is None
    # A short standstill on the way is taken for the end the first time; nothing else could be known.
    assert clock.now_s - began <= 4


def test_later_stops_wait_for_what_was_free_before() -> None:
    clock = FakeClock()
    memory = GpuMemory(at(clock, (0, "0, 500\n1, 300")), clock)
    assert memory.settle(quiet) is None
    memory.host = at(clock, (0, "0, 90000\n1, 300"), (30, "0, 540\n1, 310"))
    began = clock.now_s
    assert memory.settle(quiet) is None
    assert 30 <= clock.now_s - began < 33


def test_what_does_not_come_back_is_told() -> None:
    clock = FakeClock()
    memory = GpuMemory(at(clock, (0, "0, 500")), clock, patience_s=20)
    memory.settle(quiet)
    memory.host = at(clock, (0, "0, 9500"))
    told: list[str] = []
    assert memory.settle(lambda what, _limit: told.append(what)) == "9000 MiB of GPU 0 are still taken"
    assert set(told) == {"waiting for GPU memory to be free again"}
