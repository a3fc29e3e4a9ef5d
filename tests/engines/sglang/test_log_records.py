"""What stands around SGLang's words: the journal, containers, colours, progress bars, broken bytes, cuts."""

import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftmark.engines.sglang.log import read_log
from draftmark.engines.sglang.log.boot import read_boot
from draftmark.engines.sglang.log.records import LONGEST_LINE, lines_of, records

HERE = Path(__file__).parents[2] / "data" / "sglang"
POOL = "[2026-01-01 00:00:00 TP0] Memory pool end. avail mem=52.94 GB"
CAPTURE = (HERE / "captured-0.5.17-k3.log").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "carrier",
    [
        "Nov 29 16:50:45 gpu-1 sglang[123]: ",
        "Nov 29 16:50:45 gpu-1 python3[123]: ",
        "2026-11-29T16:50:45+0000 gpu-1 sglang[123]: ",
        "2026-11-29T16:50:45.123456+01:00 gpu-1 python3.12[123]: ",
        "sglang-1  | ",
        "2026-11-29T16:50:45.123456789Z ",
        "2026-11-29T16:50:45.123456789Z stderr F ",
        "(SchedulerActor pid=4011, ip=10.0.0.1) ",
        "  0%|          | 0/58 [00:00<?, ?it/s]",
        "\x1b[1;33m",
        "anything at all ",
    ],
)
def test_carriers(carrier: str) -> None:
    boot = read_boot([carrier + POOL + "\n"])
    assert boot.pool_ends_gib == (52.94,)
    assert boot.ranks[0].rank == "TP0"


@pytest.mark.parametrize(
    "carrier", ["Nov 29 16:50:45 gpu-1 sglang[123]: ", "sglang-1  | ", "2026-11-29T16:50:45.1Z stderr F "]
)
def test_tracebacks_behind_a_carrier(carrier: str) -> None:
    text = (HERE / "captured-0.5.17-k10.log").read_text(encoding="utf-8")
    plain = read_log(text.splitlines())
    carried = read_log(carrier + line for line in text.splitlines() if line)
    assert [f.kind for f in carried.boot.failures] == [f.kind for f in plain.boot.failures]
    assert carried.lines.unknown == plain.lines.unknown


def test_no_stamp_at_all() -> None:
    assert read_boot(["Memory pool end. avail mem=52.94 GB"]).pool_ends_gib == (52.94,)


def test_a_whole_log_in_dockers_json() -> None:
    entries = [json.dumps({"log": line, "stream": "stderr"}) + "\n" for line in CAPTURE.splitlines(keepends=True)]
    packed, plain = read_log(entries), read_log(CAPTURE.splitlines(keepends=True))
    assert packed == plain


def test_dockers_parts_are_put_together() -> None:
    """A line of more than 16 KiB comes in several entries; only the last has the line's end."""
    line = next(line for line in CAPTURE.splitlines(keepends=True) if "server_args=" in line)
    parts = [line[i : i + 5000] for i in range(0, len(line), 5000)]
    docker = [json.dumps({"log": part}) + "\n" for part in parts]
    cri = [
        f"2026-11-29T16:50:45.1Z stderr {'F' if part is parts[-1] else 'P'} {part.rstrip(chr(10))}\n"
        for part in parts
    ]
    whole = read_boot([line])
    assert len(parts) > 2
    for pieces in (docker, cri):
        boot = read_boot(["x\n", *pieces, POOL + "\n"])
        assert boot.server_args == whole.server_args
        assert boot.server_args_complete
        assert boot.first_line == 2


def test_the_journals_json() -> None:
    assert read_boot([json.dumps({"MESSAGE": POOL, "_PID": "1"}) + "\n"]).pool_ends_gib == (52.94,)


def test_a_record_in_a_progress_bar() -> None:
    line = f"Capturing (bs=1): 5%|x| 1/20\rCapturing (bs=2)\r{POOL}{POOL}\r\n"
    texts = [(r.line, r.rank, r.text) for r in records([line])]
    assert texts == [
        (1, "", "Capturing (bs=1): 5%|x| 1/20"),
        (1, "", "Capturing (bs=2)"),
        (1, "TP0", "Memory pool end. avail mem=52.94 GB"),
        (1, "TP0", "Memory pool end. avail mem=52.94 GB"),
    ]


@pytest.mark.parametrize("rank", ["", " DP1", " DP0 PP1 TP3 EP3", " ATTN_CP1 MOE_DP0 TP1"])
def test_ranks_and_milliseconds(rank: str) -> None:
    (record,) = records([f"[2026-01-01 00:00:00.123{rank}] hello\n"])
    assert record == (1, "2026-01-01 00:00:00.123", rank.strip(), "hello", False)


def test_the_open_end_of_a_cut_line_is_not_believed() -> None:
    """`2.87GB` may be followed by the intermediate states, `#queue-req: 1` by more digits."""
    mamba = "[2026-01-01 00:00:00] Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.07GB, "
    cut = read_log(["x\n", mamba + "ssm_state size: 2.87GB"])
    assert cut.boot.cut
    assert cut.boot.mamba is None
    whole = read_log(["x\n", mamba + "ssm_state size: 2.87GB \n"])
    assert not whole.boot.cut
    assert whole.boot.mamba is not None
    decode = "[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, #queue-req: 1"
    assert read_log(["x\n", decode]).serving.decode_lines == 0
    assert read_log(["x\n", POOL]).boot.pool_ends_gib == (52.94,)  # its end is plain to see


def test_unknown_lines_are_counted() -> None:
    log = read_log(f"[2026-01-01 00:00:00] {chr(97 + i % 26)} line of another program" for i in range(100))
    assert (log.lines.total, log.lines.known, log.lines.unknown) == (100, 0, 100)
    assert len(log.lines.samples) == 10
    assert log.boot.unknown_lines == 100


def test_blank_lines_are_no_records() -> None:
    assert read_log(["\n", "  \n", "\r\n", ""]).lines.total == 0


def test_a_line_longer_than_memory_should_hold() -> None:
    file = io.BytesIO(b"x" * (3 * LONGEST_LINE + 5) + b"\n" + POOL.encode() + b"\n")
    lines = list(lines_of(file))
    assert max(map(len, lines)) == LONGEST_LINE
    assert read_boot(lines).pool_ends_gib == (52.94,)
    assert read_boot(["y" * (2 * LONGEST_LINE) + "\n", POOL]).pool_ends_gib == (52.94,)


def test_long_arguments_are_read_whole() -> None:
    paths = {f"adapter-{i}": f"/models/adapters/{i}" for i in range(20_000)}
    boot = read_boot([f"[2026-01-01 00:00:00] server_args={ {'lora_paths': paths, 'port': 1}!r}\n"])
    assert boot.server_args == {"lora_paths": paths, "port": 1}
    assert boot.server_args_complete


@given(st.lists(st.text()))
@example(['{"log":' + "[" * 100_000])
@example(['{"log": "\\ud800 [2026-01-01 00:00:00] Decode batch, #running-req: 1"}'])
@example(["[2026-01-01 00:00:00] server_args=ServerArgs(" + "(" * 5000])
@example(["[2026-01-01 00:00:00] server_args={" + "'a': {" * 5000])
@example(
    ["[2026-01-01 00:00:00] max_total_num_tokens=" + "9" * 6000 + ", chunked_prefill_size=1, max_prefill_tokens=1"]
)
@example(["[2026-01-01 00:00:00] Load weight begin. avail mem=1.2.3 GB", "Load weight begin. avail mem=... GB"])
@example(["Decode batch, #running-req: nan, token usage: inf, accept len: 1e400, #queue-req: ²"])
@example(["Prefill batch, #new-token: ²³, #cached-token: " + "1" * 5000])
def test_no_text_raises(lines: list[str]) -> None:
    log = read_log(lines)
    assert log.lines.known + log.lines.unknown == log.lines.total


@given(st.binary())
def test_no_bytes_raise(data: bytes) -> None:
    read_log(lines_of(io.BytesIO(data)))


@pytest.mark.no_cover
def test_damaged_logs() -> None:
    """Bytes flipped, cut out and repeated, in logs of every version: nothing raises, and counts stay counts."""
    dice = random.Random(5)
    sources = [path.read_bytes() for path in sorted(HERE.glob("*.log"))]
    for _ in range(300):
        data = bytearray(dice.choice(sources)[:20_000])
        for _ in range(dice.randrange(1, 40)):
            at = dice.randrange(len(data))
            kind = dice.randrange(4)
            if kind == 0:
                data[at] = dice.randrange(256)
            elif kind == 1:
                del data[at : at + dice.randrange(60)]
            elif kind == 2:
                data[at:at] = data[max(0, at - 50) : at] * dice.randrange(4)
            else:
                data[at:at] = bytes(dice.choices(b"[](){}'\"=,:0123456789\r\n\x1b\xff", k=5))
            if not data:
                data += b"x"
        log = read_log(lines_of(io.BytesIO(bytes(data))))
        assert log.lines.known + log.lines.unknown == log.lines.total
