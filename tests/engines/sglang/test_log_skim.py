"""What is taken many lines at a time says the same as line by line: lines without their ends go one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.sglang.log import SglangLog, read_log, read_log_file
from draftmark.engines.sglang.log.skim import Skimmer

HERE = Path(__file__).parents[2] / "data" / "sglang"
LOGS = [path.read_text(errors="replace").split("\n") for path in sorted(HERE.glob("*.log"))]
STAMP = "[2026-11-29 16:50:47"
LAST = "its end"  # so that no line is left half said: that is another matter with line ends than without


def one_by_one(text: str) -> SglangLog:
    return read_log([*text.split("\n"), LAST])


def many_at_once(text: str) -> SglangLog:
    return read_log(line + "\n" for line in [*text.split("\n"), LAST])


def batches(count: int, dice: random.Random, rank: str = "") -> list[str]:
    """Of two makes, the accept length now and then no number."""
    lines = []
    for i in range(count):
        accepted = "-" if dice.random() < 0.02 else f"{1 + dice.random() * 3:.2f}"
        lines += [
            f"{STAMP}{rank}] Decode batch, #running-req: {i % 9}, #token: {i}, token usage: 0.{i % 90:02}, "
            f"accept len: {accepted}, accept rate: 0.5, cuda graph: {i % 7 > 0}, "
            f"gen throughput (token/s): {dice.random() * 4e3:.2f}, #queue-req: {i % 5}",
            f"{STAMP}{rank}] Prefill batch [{i}], #new-seq: 1, #new-token: {i}, #cached-token: {i % 3}, "
            f"token usage: 0.01, #running-req: 1, #queue-req: {i % 4}, input throughput (token/s): {i / 7:.2f}",
            f'{STAMP}] INFO:     127.0.0.1:{i} - "POST /generate HTTP/1.1" 200 OK',
        ]
    return lines


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(40))
def test_mixed_and_damaged_logs(seed: int) -> None:
    dice = random.Random(seed)
    lines: list[str] = []
    for _ in range(dice.randrange(1, 5)):
        source = dice.choice(LOGS)
        at = dice.randrange(len(source))
        lines += source[at : at + dice.randrange(80)]
        lines += batches(dice.randrange(120), dice, dice.choice(["", " TP0", " DP1 TP0", " TP1"]))
        lines += dice.choice([[], ["Traceback (most recent call last):", '  File "x", line 1'], ["{"], [""]])
        lines += dice.choice([[], ["2026-01-01T00:00:00.1Z stderr P [2026-01-01 00:00:00] Deco"]])
    text = "\n".join(lines)
    for _ in range(dice.randrange(20)):
        at = dice.randrange(len(text))
        text = text[:at] + dice.choice(["", "[", ", ", ": ", "1", "\x1b", "²", "\n", "\r"]) + text[at + 1 :]
    assert many_at_once(text) == one_by_one(text)


def test_a_long_log(tmp_path: Path) -> None:
    """More values than a median keeps apart, and a start in the middle."""
    dice = random.Random(1)
    capture = next(lines for lines in LOGS if any("server_args=" in line for line in lines))
    lines = [*capture, *batches(4000, dice), *capture, *batches(2500, dice)]
    path = tmp_path / "sglang.log"
    path.write_text("\n".join([*lines, LAST]) + "\n")
    found = read_log_file(path)
    assert found == one_by_one("\n".join(lines)) == many_at_once("\n".join(lines))
    assert found.boot.boots == 2
    assert found.serving.decode_lines >= 2500


def test_nearly_all_of_a_long_log_is_skimmed() -> None:
    """Else it is right, and slow."""
    skimmer = Skimmer()
    lines = batches(50, random.Random(2))
    for line in lines[:2]:
        skimmer.learn(line + "\n")
    left = list(skimmer.read("\n".join(lines) + "\n").left_over())
    assert len(left) <= 5  # those without a number


@given(st.lists(st.text(alphabet="[]0123456789-: ,DPTecodbath#\r\x1b.", max_size=90)))
def test_any_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert many_at_once(text) == one_by_one(text)
