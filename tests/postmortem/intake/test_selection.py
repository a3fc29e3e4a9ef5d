"""Large sources: what is kept of them, with the right numbers, and what a flood of hints does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from draftmark.postmortem.intake import Hints, Limits, matcher, read_bytes
from draftmark.postmortem.model import Source

SMALL = Limits(whole_bytes=20_000, whole_lines=300, head_lines=30, tail_lines=60, hits_per_hint=100, last_hits=50)
TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: gone"]


def traffic(count: int) -> list[str]:
    draw = random.Random(1)
    return [f"[2026-03-02 10:{n // 60 % 60:02}:{n % 60:02} TP0] Decode batch {draw.random()}" for n in range(count)]


def blocks(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[at : at + size] for at in range(0, len(data), size))


def read(lines: list[str], *hints: str, limits: Limits = SMALL, size: int = 5000) -> Source:
    data = "\n".join(lines).encode()
    source = read_bytes("big.log", blocks(data, size), hints=Hints(hints), limits=limits)
    assert source.total_lines == len(lines)
    assert source.size_bytes == len(data)
    for line in source.lines:
        assert line.raw in lines[line.number - 1]
    assert [line.number for line in source.lines] == sorted(line.number for line in source.lines)
    return source


@pytest.fixture(params=["hyperscan", "re"], autouse=True)
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    matcher.matcher.cache_clear()
    if request.param == "hyperscan":
        pytest.importorskip("hyperscan", reason="there is no hyperscan here")
    else:
        monkeypatch.setattr(matcher, "_hyperscan", matcher._pattern)
    yield
    matcher.matcher.cache_clear()


def test_head_tail_and_hits_with_their_neighbours() -> None:
    lines = traffic(3000)
    lines[1234] += " Killed process 9"
    kept = {line.number for line in read(lines, "Killed process", "never").lines}
    assert set(range(1, 31)) <= kept
    assert set(range(2941, 3001)) <= kept
    assert {1234, 1235, 1236} <= kept
    assert len(kept) < 100


@pytest.mark.parametrize("size", [1, 7, 999, 65536, 10_000_000])
def test_blocks_may_end_anywhere(size: int) -> None:
    lines = traffic(700)
    lines[350:350] = TRACE
    kept = {line.number for line in read(lines, "gone", size=size).lines}
    assert set(range(351, 355)) <= kept


def test_a_traceback_is_kept_whole_with_other_ranks_in_between() -> None:
    lines = traffic(3000)
    block = ["[2026-03-02 10:00:00 TP1] Scheduler hit an exception: " + TRACE[0]]
    for n in range(150):
        block += [f'  File "a.py", line {n}, in f', f"    call({n})"]
        block += traffic(2) if n % 10 == 0 else []
    block += ["", "During handling of the above exception, another exception occurred:", "", *TRACE]
    lines[1000:1000] = block
    kept = {line.number for line in read(lines).lines}
    assert set(range(1001, 1001 + len(block))) <= kept
    assert len(kept) < len(block) + 110


def test_prefixed_frames_belong_to_their_traceback() -> None:
    lines = traffic(3000)
    block = [f"Mar 02 10:00:00 h python3[9]: {text}" for text in TRACE]
    lines[1000:1000] = [line for own in block for line in (own, *traffic(3))]
    kept = {line.raw for line in read(lines).lines}
    assert set(block) <= kept


def test_a_flood_keeps_its_first_and_its_last_lines() -> None:
    lines = [f"{line} out of memory" for line in traffic(40_000)]
    lines[30_000] += " Killed process 9"
    source = read(lines, "out of memory", "Killed process", size=100_000)
    numbers = [line.number for line in source.lines]
    assert 30_001 in numbers
    assert set(range(1, 100)) <= set(numbers)
    assert set(range(39_990, 40_001)) <= set(numbers)
    assert len(numbers) < 3000
    assert "out of memory" in source.notes[0]
    assert "Killed" not in source.notes[0]


def test_a_hint_that_flooded_early_and_comes_once_more() -> None:
    lines = traffic(60_000)
    for n in range(20_000):
        lines[n] += " out of memory"
    lines[40_000] += " out of memory"
    lines[40_001:40_001] = TRACE
    source = read(lines, "out of memory", size=100_000)
    numbers = {line.number for line in source.lines}
    assert set(range(40_001, 40_006)) <= numbers
    assert len(numbers) < 4000


def test_many_hints_that_all_flood() -> None:
    hints = [f"hint number {n};" for n in range(200)]
    lines = [f"{n} hint number {n % 200}; x" for n in range(60_000)]
    source = read(lines, *hints, limits=Limits(whole_bytes=1, kept_lines=2000, last_hits=10), size=200_000)
    assert len(source.lines) < 12_000
    last = {line.text.split(" ", 1)[1] for line in source.lines if line.number > 50_000}
    assert len(last) == 200


@pytest.mark.parametrize("size", [10_000, 1 << 20])
def test_one_endless_line(size: int) -> None:
    text = "x" * 3_000_000 + " OutOfMemoryError here " + "y" * 3_000_000 + " the end"
    data = f"first\n{text}\nlast\n".encode()
    limits = Limits(whole_bytes=100_000)
    source = read_bytes("big.log", blocks(data, size), hints=Hints(("OutOfMemoryError",)), limits=limits)
    assert source.total_lines == 3
    assert any("OutOfMemoryError here" in line.text and line.number == 2 for line in source.lines)
    assert source.lines[-1].text == "last"
    assert source.lines[-1].number == 3
    assert sum(len(line.text) for line in source.lines) < 100_000
    assert all(len(line.raw) <= 2000 for line in source.lines)


def test_an_endless_line_at_the_end() -> None:
    data = b"first\n" + b"x" * 5_000_000
    source = read_bytes("big.log", blocks(data, 1 << 20), hints=Hints(), limits=Limits(whole_bytes=1000))
    assert (source.total_lines, source.lines[-1].number) == (2, 2)


def test_too_many_lines_for_a_small_file() -> None:
    source = read([str(n) for n in range(2000)], "1234")
    assert len(source.lines) < 200
    assert any(line.text == "1234" for line in source.lines)


def test_both_searches_find_the_same() -> None:
    literals = [b"Killed", b"Killed process", b"out of memory", b"CUDA error: out", b"of", b"\xc3\xa9", b"a.b*"]
    texts = [b"Killed process", b"CUDA error: out of memory", "é a.b*".encode(), b"nothing", b"", b"Kill ed"]
    pytest.importorskip("hyperscan", reason="there is no hyperscan here")
    for text in texts:
        wanted = {n for n, literal in enumerate(literals) if literal in text}
        assert set(matcher._pattern(literals)(memoryview(text))) == wanted, text
        assert set(matcher.matcher(tuple(literals))(memoryview(text))) == wanted, text


def test_no_hints_at_all() -> None:
    assert len(read(traffic(3000)).lines) == 90
