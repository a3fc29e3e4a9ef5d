"""Acceptance: what a plain search finds in real logs is what the grammar gives. It shares no pattern with it."""

import re
from pathlib import Path

import pytest

from draftmark.engines.sglang.log import SglangLog, read_log, read_log_file

HERE = Path(__file__).parents[2] / "data" / "sglang"
SHARED = Path(__file__).parents[4] / "shared" / "captures" / "sglang-h200"
CAPTURES = sorted([*HERE.glob("captured-*.log"), *SHARED.glob("*.log")])
captures = pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)


def read(path: Path) -> tuple[str, SglangLog]:
    text = path.read_bytes().decode("utf-8", "replace")
    return text, read_log_file(path)


def floats(pattern: str, text: str) -> list[tuple[float, ...]]:
    found = re.findall(pattern, text)
    return [tuple(float(x) for x in (item if isinstance(item, tuple) else (item,))) for item in found]


@captures
def test_the_memory_lines(path: Path) -> None:
    text, log = read(path)
    boot = log.boot
    assert [(w.avail_gib, w.mem_gib) for w in boot.weights] == floats(
        r"weight end.*?avail mem=([\d.]+) GB, mem usage=([\d.]+) GB", text
    )
    assert [w.type for w in boot.weights] == re.findall(r"weight end\..*?type=([A-Za-z0-9_]+)", text)
    assert [(kv.tokens, kv.k_gib, kv.v_gib) for kv in boot.kv] == floats(
        r"#tokens: (\d+), K size: (\S+) GB, V size: (\S+) GB", text
    )
    assert [(end,) for end in boot.pool_ends_gib] == floats(r"pool end\. avail mem=(\S+) GB", text)
    begins = floats(r"weight begin\. avail mem=(\S+) GB", text)
    assert boot.gpu_avail_before_weights_gib == (begins[0][0] if begins else None)
    slots = re.findall(r"max_mamba_cache_size: (\d+)", text)
    assert boot.mamba is None if not slots else boot.mamba is not None
    if boot.mamba is not None:
        sizes = re.search(r"conv_state size: ([\d.]+)GB, ssm_state size: ([\d.]+)GB(.*)", text)
        assert sizes is not None
        assert boot.mamba[:3] == (int(slots[0]), float(sizes[1]), float(sizes[2]))
        more = [float(x) for x in re.findall(r"cache size: ([\d.]+)GB", sizes[3])]
        assert [size for size in boot.mamba[3:] if size is not None] == more


@captures
def test_the_graphs(path: Path) -> None:
    text, log = read(path)
    ends = re.findall(
        r"Capture (\w+ \w+) CUDA graph end\. elapsed=(\S+) s, mem usage=(\S+) GB, avail mem=(\S+) GB", text
    )
    assert [(g.name, g.elapsed_s, g.mem_gib, g.avail_gib) for g in log.boot.graphs] == [
        (name, float(s), float(mem), float(avail)) for name, s, mem, avail in ends
    ]
    begins = re.findall(r"graph begin\..*?(?:per_req=(\d+), bs|num_tokens)=\[(.*?)\]", text)
    assert [(g.num_tokens_per_bs, g.bs) for g in log.boot.graphs] == [
        (int(per) if per else None, tuple(int(x) for x in sizes.split(", "))) for per, sizes in begins
    ]


@captures
def test_the_summary_and_ready(path: Path) -> None:
    text, log = read(path)
    found = re.search(
        r"max_total_num_tokens=(\d+), chunked_prefill_size=(-?\d+), max_prefill_tokens=(\d+), "
        r"max_running_requests=(\d+), context_len=(\d+), available_gpu_mem=([\d.]+) GB",
        text,
    )
    assert (found is None) == (log.boot.summary is None)
    if found is not None:
        assert log.boot.summary == (*(int(found[i]) for i in range(1, 6)), float(found[6]))
    assert log.boot.ready == ("fired up and ready to roll" in text)
    assert log.boot.http_up == ("Uvicorn running on" in text)
    assert log.boot.boots == 1
    assert not log.boot.cut


@captures
def test_the_arguments(path: Path) -> None:
    text, log = read(path)
    if "server_args=" not in text:
        assert not log.boot.server_args
        return
    line = next(line for line in text.splitlines() if "server_args=" in line)
    args = log.boot.server_args
    assert log.boot.server_args_complete
    assert len(args) > 400
    plain = re.findall(r"[(, ]([a-z]\w+)=(-?\d+|None|True|False|'[^'\\]*')(?=[,)])", line)
    assert len(plain) > 400
    for name, value in plain:
        if name in args:  # else it is inside a nested dataclass
            assert str(args[name]) == value.strip("'"), name
    assert sum(name in args for name, _ in plain) > 400
    graphs = args["cuda_graph_config"]
    assert isinstance(graphs, dict)
    assert graphs["decode"]["bs"][0] == 1
    assert (log.boot.version_range.since, log.boot.version_range.until) == ("0.5.17", "0.5.17")


@captures
def test_the_batches(path: Path) -> None:
    text, log = read(path)
    serving = log.serving
    assert serving.decode_lines == text.count("] Decode batch, ")
    assert serving.prefill_batches == text.count("] Prefill batch, ")
    assert serving.new_tokens == sum(int(n) for n in re.findall(r"#new-token: (\d+)", text))
    assert serving.cached_tokens == sum(int(n) for n in re.findall(r"#cached-token: (\d+)", text))
    lens = [float(n) for n in re.findall(r"accept len: ([\d.]+)", text)]
    if lens:
        assert serving.accept_len == (len(lens), lens[-1], sorted(lens)[(len(lens) - 1) // 2], max(lens))
    else:
        assert serving.accept_len is None
    speeds = [float(n) for n in re.findall(r"gen throughput \(token/s\): ([\d.]+)", text)]
    if speeds:
        middle = sorted(speeds)[(len(speeds) - 1) // 2]
        assert serving.gen_throughput == (len(speeds), speeds[-1], middle, max(speeds))
    decodes = re.findall(r"Decode batch.*cuda graph: (\w+)", text)
    assert serving.decode_with_graph == decodes.count("True")
    assert serving.decode_without_graph == decodes.count("False")


@captures
def test_the_end(path: Path) -> None:
    text, log = read(path)
    ending = log.ending
    assert (ending.sigterm_line is not None) == ("SIGTERM received" in text)
    assert [d.remaining for d in ending.drain] == [int(n) for n in re.findall(r"number of requests (\d+)", text)]
    assert (ending.teardown is not None) == ("kill_process_tree called" in text)
    children = re.findall(r"Subprocess (\S+) \(pid=(\d+)\) crashed with exit code (-?\d+)", text)
    assert [(c.name, c.pid, c.code) for c in ending.children] == [(n, int(p), int(c)) for n, p, c in children]
    assert (ending.sigquit_line is not None) == ("SIGQUIT received" in text or "Received sigquit" in text)
    expected = {"bad_flag": "none", "kill_child": "child-died", "smollm2-metrics": "children-stopped"}
    failed = "exception" if "k10" in path.stem else "graceful"
    assert ending.way == expected.get(path.stem, failed)


@captures
def test_line_numbers_point_at_the_lines(path: Path) -> None:
    text, log = read(path)
    lines = text.split("\n")
    for warned in log.boot.warnings:
        assert warned.text[:40] in lines[warned.line - 1]
    for failure in log.boot.failures:
        assert failure.text[:40] in lines[failure.line - 1]
    if log.ending.sigterm_line is not None:
        assert "SIGTERM" in lines[log.ending.sigterm_line - 1]


@captures
def test_hardly_a_line_is_unknown_and_none_is_lost(path: Path) -> None:
    _, log = read(path)
    lines = log.lines
    assert lines.known + lines.unknown == lines.total
    assert lines.unknown == log.boot.unknown_lines
    assert lines.unknown <= 5, lines.samples
    for sample in lines.samples:  # the second halves of Python's and torchao's warnings
        assert sample.startswith("  ")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the captures lie beside the checkout, in ../shared")
def test_what_failed_in_the_captures() -> None:
    kinds = {path.stem: [f.kind for f in read(path)[1].boot.failures] for path in SHARED.glob("*.log")}
    assert kinds["q35_k10_mf0.62"] == ["exception", "weights-leave-nothing", "sigquit-launch"]
    assert kinds["bad_flag"] == ["error"]
    assert kinds["kill_child"] == ["child-died", "sigquit"]
    assert kinds["base"] == kinds["q35_k3_mf0.62"] == []


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["captured-0.5.17-k3.log", "captured-0.5.17-k10.log"])
def test_a_cut_log_says_nothing_that_the_whole_one_does_not(name: str) -> None:
    """Every figure of a beginning, cut anywhere, is a figure of the whole."""
    data = (HERE / name).read_bytes()
    whole = read_log_file(HERE / name)
    for end in [*range(0, len(data), 383), len(data)]:
        part = read_log(data[:end].decode("utf-8", "replace").splitlines(keepends=True))
        assert_part(part, whole)


def assert_part(part: SglangLog, whole: SglangLog) -> None:
    mine, theirs = part.boot, whole.boot
    assert mine.weights == theirs.weights[: len(mine.weights)]
    assert mine.kv == theirs.kv[: len(mine.kv)]
    assert mine.pool_ends_gib == theirs.pool_ends_gib[: len(mine.pool_ends_gib)]
    assert mine.mamba in (None, theirs.mamba)
    assert mine.summary in (None, theirs.summary)
    assert {g for g in mine.graphs if g.mem_gib is not None} <= set(theirs.graphs)
    assert mine.server_args.items() <= theirs.server_args.items() if mine.server_args_complete else True
    for name, value in mine.server_args.items():
        assert theirs.server_args[name] == value
    assert set(mine.timings_s.items()) <= set(theirs.timings_s.items())
    assert part.serving.new_tokens <= whole.serving.new_tokens
    assert part.serving.decode_lines <= whole.serving.decode_lines
    assert [d.remaining for d in part.ending.drain] == [
        d.remaining for d in whole.ending.drain[: len(part.ending.drain)]
    ]
