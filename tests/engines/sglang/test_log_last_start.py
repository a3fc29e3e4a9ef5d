"""The last start in a long log, found without reading it all: it says the same of memory as the whole log does."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.log.boot import BootLog, read_boot
from draftmark.engines.sglang.log.last_start import last_start, to_ready

HERE = Path(__file__).parents[2] / "data" / "sglang"
LOGS = {path.stem: path.read_bytes() for path in sorted(HERE.glob("*.log"))}
CAPTURE = LOGS["captured-0.5.17-k3"]
FAILED = LOGS["captured-0.5.17-k10"]
SERVING = (
    b"[2026-11-29 17:00:00] Decode batch, #running-req: 3, #token: 900, token usage: 0.25, cuda graph: True, "
    b"gen throughput (token/s): 400.00, #queue-req: 0\n"
) * 20_000
BAD_FLAG = b"[2026-11-29 18:00:00] server_args=ServerArgs(model_path='/models/other', tp_size=1)\nTraceback\n"


def blocks(data: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def found_in(data: bytes, size: int = 1 << 16) -> BootLog:
    return read_boot(last_start(blocks(data, size)).lines())


def memory(boot: BootLog) -> BootLog:
    """Without line numbers, what is no part of the start, and what only a whole log tells."""
    return dataclasses.replace(
        boot, boots=0, first_line=None, unknown_lines=0, cut=False, http_up=True,
        warnings=tuple(each._replace(line=0) for each in boot.warnings),
        failures=tuple(each._replace(line=0) for each in boot.failures),
    )  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("size", [100, 1 << 12, 1 << 20])
def test_a_short_log_is_taken_as_it_is(name: str, size: int) -> None:
    data = LOGS[name]
    whole, found = memory(read_boot(data.decode("utf-8", "replace").split("\n"))), memory(found_in(data, size))
    assert found == dataclasses.replace(whole, warnings=found.warnings, failures=found.failures)
    assert found.warnings == whole.warnings[: len(found.warnings)]
    assert found.failures == whole.failures[: len(found.failures)]  # others came once it was ready


def test_hours_of_serving_behind_a_start_are_not_read() -> None:
    found = last_start(blocks(CAPTURE + SERVING))
    assert len(found.text) < len(CAPTURE)
    assert (found.starts, found.passed_over, found.told) == (1, 0, True)
    assert memory(read_boot(found.lines())) == memory(found_in(CAPTURE))


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (SERVING + CAPTURE, 1),  # its beginning was rotated away: the start is in the middle
        (LOGS["sglang-0.5.14"] + SERVING + CAPTURE + SERVING, None),
        (FAILED * 3 + CAPTURE, 4),
        (SERVING[: 80 * 300] + CAPTURE, 1),
    ],
)
def test_the_last_of_several_starts(data: bytes, starts: int | None) -> None:
    found = last_start(blocks(data))
    assert found.starts == starts or starts is None
    assert memory(read_boot(found.lines())) == memory(found_in(CAPTURE))
    assert found.time == "2026-11-29 16:50:47"


def test_a_start_that_failed_counts_where_it_told_its_weights() -> None:
    assert memory(found_in(CAPTURE + SERVING + FAILED)) == memory(found_in(FAILED))


def test_a_start_that_said_nothing_of_memory_is_passed_over() -> None:
    found = last_start(blocks(CAPTURE + SERVING + BAD_FLAG * 2))
    assert (found.starts, found.passed_over) == (3, 2)
    assert memory(read_boot(found.lines())) == memory(found_in(CAPTURE))
    assert last_start(blocks(BAD_FLAG)).passed_over == 0


def test_what_the_launcher_said_before_the_arguments_is_of_the_start() -> None:
    """That 48 requests are SGLang's own limit, and not asked for, stands there only."""
    lines = CAPTURE.split(b"\n")
    at = next(i for i, line in enumerate(lines) if b"server_args=" in line)
    said = b"[2026-11-29 16:50:46] Max running requests is reset to 48 for speculative decoding."
    data = SERVING + b"\n".join([said, *lines[at:]])
    assert [each.kind for each in found_in(data).warnings][:1] == ["running-reset-48"]


def test_a_log_without_arguments() -> None:
    lines = [line for line in CAPTURE.split(b"\n") if b"server_args=" not in line]
    boot = found_in(SERVING + b"\n".join(lines) + SERVING)
    assert boot.summary is not None
    assert boot.summary.max_total_num_tokens == 338_982


def test_memory_is_bounded_where_a_start_never_ends() -> None:
    endless = b"x" * 999 + b"\n"
    found = last_start([CAPTURE[:20_000], *[endless * 1000] * 40])
    assert len(found.text) < 10 << 20
    assert len(last_start([b"y" * (1 << 20)] * 20).text) < 10 << 20


def test_a_stream_is_left_when_the_server_is_ready() -> None:
    data = CAPTURE + SERVING
    for size in (50, 4096):
        read = b"".join(to_ready(blocks(data, size), 1 << 30))
        assert CAPTURE.find(b"ready to roll") < len(read) < len(CAPTURE)
    assert len(b"".join(to_ready(blocks(SERVING), 100_000))) < 200_000


@given(st.binary(max_size=400), st.integers(1, 60))
def test_any_bytes(data: bytes, size: int) -> None:
    read_boot(last_start(blocks(data, size)).lines())


@pytest.mark.parametrize("seed", range(10))
def test_damaged_logs(seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(b"".join(dice.choices([CAPTURE, FAILED, BAD_FLAG, SERVING[:9000]], k=4)))
    for _ in range(60):
        at = dice.randrange(len(data))
        data[at : at + dice.randrange(40)] = bytes(dice.choices(b"\n\r{server_args=\xff", k=dice.randrange(6)))
    read_boot(last_start(blocks(bytes(data), dice.randrange(50, 5000))).lines())
