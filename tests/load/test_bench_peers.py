"""The table of peers that bench/load measures: what each one's own words for its figures become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.load.lab import UnmeasuredError, measured
from bench.load.peers import PEERS, Asked, chosen
from bench.load.peers.model import one_a_slot

RANKS = (50, 90, 95, 99)
WANTED = {"p50": 2.0, "p90": 3.0, "p95": 4.0, "p99": 5.0}


def _flat(folder: Path, name: str, tag: str, median: str) -> None:
    """Keys like p99_ttft_ms, of TTFT alone at first."""
    words = {f"{median if q == 50 else f'p{q}'}": WANTED[f"p{q}"] for q in RANKS} | {"mean": 2.5}
    told: dict[str, Any] = {
        f"{rank}_{figure}_ms": value
        for rank, value in words.items()
        for figure in ("ttft", "tpot", "itl", "e2el", "e2e_latency")
    }
    told |= {"completed": 7, "failed": 1, "duration": 2.0, "total_output_tokens": 448, "output_throughput": 224.0}
    (folder / name).write_text(json.dumps({"tag": tag, **told}) + "\n")


def _vllm(folder: Path) -> None:
    _flat(folder, "vllm.json", "one document", "p50")


def _sglang(folder: Path) -> None:
    _flat(folder, "sglang.jsonl", "a line a run", "median")


def _aiperf(folder: Path) -> None:
    spread = {"avg": 2.5, **WANTED}
    names = ("time_to_first_token", "inter_token_latency", "inter_chunk_latency", "request_latency")
    told: dict[str, Any] = dict.fromkeys(names, spread)
    for name, value in (("request_count", 7), ("error_request_count", 1), ("benchmark_duration", 2.0)):
        told[name] = {"avg": value}
    told |= {"total_output_tokens": {"avg": 448}, "output_token_throughput": {"avg": 224.0}}
    (folder / "aiperf").mkdir()
    (folder / "aiperf" / "profile_export_aiperf.json").write_text(json.dumps(told))


def _guidellm(folder: Path) -> None:
    spread = {"successful": {"mean": 2.5, "percentiles": WANTED}}
    seconds = {"successful": {"mean": 0.0025, "percentiles": {q: v / 1e3 for q, v in WANTED.items()}}}
    names = ("time_to_first_token_ms", "time_per_output_token_ms", "inter_token_latency_ms")
    metrics: dict[str, Any] = dict.fromkeys(names, spread)
    metrics["request_latency"] = seconds
    metrics["request_totals"] = {"successful": 7, "errored": 1, "incomplete": 0}
    metrics["output_token_count"] = {"successful": {"total_sum": 448}}
    metrics["output_tokens_per_second"] = {"successful": {"mean": 224.0}}
    told = {"benchmarks": [{"duration": 2.0, "metrics": metrics}]}
    (folder / "guidellm.json").write_text(json.dumps(told))


def _evalscope(folder: Path) -> None:
    run = folder / "evalscope" / "stream-lab" / "parallel_4_number_8"
    run.mkdir(parents=True)
    summary = {"Success Requests": 7, "Failed Requests": 1, "Test Duration (s)": 2.0, "Avg Output Tokens": 64.0}
    (run / "benchmark_summary.json").write_text(json.dumps({**summary, "Output Throughput (tok/s)": 224.0}))
    rows = [
        {
            "Percentiles": f"{q}%",
            **{f"{name} (ms)": WANTED[f"p{q}"] for name in ("TTFT", "TPOT", "ITL")},
            "Latency (s)": WANTED[f"p{q}"] / 1e3,
        }
        for q in RANKS
    ]
    (run / "benchmark_percentile.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("write", [_vllm, _sglang, _aiperf, _guidellm, _evalscope])
def test_a_peers_figures_become_those_of_the_emitters_form(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    figures = PEERS[write.__name__.strip("_")].figures("", tmp_path)
    assert figures["requests"]["completed"] == 7
    assert (figures["duration_s"], figures["output_tokens"], figures["output_tokens_per_s"]) == (2.0, 448, 224.0)
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        told = {rank: value for rank, value in figures[name].items() if rank != "mean"}
        assert told == pytest.approx(WANTED), name


def test_every_peer_is_asked_for_the_same_load() -> None:
    asked = Asked("http://127.0.0.1:1", "openai-chat", 16, 96, 128, folder=Path("/somewhere"))
    for peer in PEERS.values():
        line = " ".join(peer.command(asked))
        assert "http://127.0.0.1:1" in line
        assert "96" in line, peer.name
        assert peer.name == "plain" or "128" in line, peer.name
        assert peer.warmup(16) in (0, one_a_slot(16))


def test_a_peer_that_is_not_there_is_told_and_not_fatal(tmp_path: Path) -> None:
    lab = Path(__file__).parents[2].parent / "shared" / "stream-lab" / "streamlab"
    if not lab.exists():
        pytest.skip("no reference emitter beside the checkout")
    with pytest.raises(UnmeasuredError, match=r"aiperf is not installed: no .*/aiperf/bin/aiperf"):
        measured(PEERS["aiperf"], {"output_tokens": 1}, Asked("", "openai", 1, 1, 1), tmp_path)


def test_a_name_that_is_no_peer_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no such peer: vlm; there are draftmark, plain"):
        chosen("draftmark,vlm")
