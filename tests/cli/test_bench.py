"""`draftmark bench` from its options to its files, against a scripted server."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.load.scripted import Request, Scripted, Wire, answer, delta, serving

from draftmark.testing.processes import popen

Draftmark = Callable[..., Any]
QUICK = ("--workload", "copy", "--requests", "4")


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving(answer(gap_s=0.002)) as running:
        yield running


def bench(draftmark: Draftmark, *words: str) -> tuple[int, dict[str, Any], str]:
    done = draftmark("bench", *words, "--json")
    return done.status, json.loads(done.out) if done.out else {}, done.err


def test_the_requests_alone_give_the_same_document(draftmark: Draftmark, server: Scripted, tmp_path: Path) -> None:
    words = (
        f"url:{server.url}",
        *QUICK,
        "--concurrency",
        "1,2",
        "--slo",
        "ttft:500,e2e:2000",
        "--output",
        "r.jsonl",
    )
    status, first, err = bench(draftmark, *words)
    assert status == 0, err
    assert [level["concurrency"] for level in first["levels"]] == [1, 2]
    assert all(level["goodput"]["good"] == level["requests"] >= 4 for level in first["levels"])
    status, again, err = bench(draftmark, "--from", "r.jsonl")
    assert status == 0, err
    assert again == first
    _, stricter, _ = bench(draftmark, "--from", "r.jsonl", "--goodput", "ttft:0.001", "e2el:0.002")
    assert stricter["levels"][0]["goodput"]["good"] == 0
    tags = [json.loads(line).get("tag") for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    told = [tag for tag in tags if tag]
    assert len(told) == len(set(told))  # each names one line of the server's log


def test_an_open_loop(draftmark: Draftmark, server: Scripted) -> None:
    status, got, err = bench(draftmark, f"url:{server.url}", *QUICK, "--rate", "50", "--arrival", "constant")
    assert status == 0, err
    assert (got["loop"], got["requests"], got["arrival"]["kind"]) == ("open", 4, "constant")
    assert got["request_rate_wanted"] == pytest.approx(50)
    assert got["ttft_intended_ms"]["p50"] >= got["ttft_ms"]["p50"]


def test_what_is_left_and_what_is_shown(draftmark: Draftmark, server: Scripted, tmp_path: Path) -> None:
    done = draftmark(
        "bench", f"url:{server.url}", *QUICK, "--concurrency", "2", "--repeat", "2",
        "--html", "page.html", "--export", "vllm=v.json", "--export", "sglang",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert done.out.splitlines()[0].startswith("Closed loop: ")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert len((tmp_path / "sglang.jsonl").read_text().splitlines()) == 2
    for run in (1, 2):
        document = json.loads((tmp_path / f"v-copy@2-run{run}.json").read_text())
        assert (document["completed"], document["max_concurrency"]) == (4, 2)
        assert f"v-copy@2-run{run}.json" in done.err


def test_whole_answers(draftmark: Draftmark) -> None:
    async def whole(wire: Wire, request: Request) -> None:
        assert not request.body.get("stream")
        body = {
            "choices": [{"message": {"role": "assistant", "content": "a b c"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        }
        await wire.whole("200 OK", json.dumps(body).encode())

    with serving(whole) as server:
        status, got, err = bench(draftmark, f"url:{server.url}", *QUICK, "--concurrency", "1", "--no-stream")
    assert status == 0, err
    assert (got["requests"], got["output_tokens"], got["ttft_ms"]["p50"]) == (4, 12, None)
    assert got["e2e_ms"]["p50"] > 0


def test_tokens_of_each_chunk_are_asked_for(draftmark: Draftmark) -> None:
    """Scripted, it is taken for vLLM, which tells them when asked."""
    with serving(answer(("a", "b"), gap_s=0.002, per_chunk=(1, 4), tokens=4)) as server:
        status, got, err = bench(draftmark, f"url:{server.url}", *QUICK, "--concurrency", "1")
    assert status == 0, err
    assert got["engine"] == "vllm"
    assert server.posts[-1].body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert got["chunk_sizes"] == [[1, 4], [3, 4]]


# --- ending early -----------------------------------------------------------------------------------------


async def endless(wire: Wire, request: Request) -> None:
    """The first answers come, later ones never end."""
    if int(request.headers["x-request-id"].removeprefix("bench-")) < 6:
        await answer()(wire, request)
        return
    wire.stream()
    await wire.event(delta("a"))
    await wire.until_left()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_what_was_measured_so_far(tmp_path: Path, signum: signal.Signals) -> None:
    with serving(endless) as server:
        words = (
            "bench",
            f"url:{server.url}",
            "--workload",
            "copy",
            "--requests",
            "50",
            "--concurrency",
            "2",
            "--json",
        )
        with popen((*words, "--output", "r.jsonl", "--html", "p.html"), tmp_path) as process:
            wait_for(lambda: len(server.posts) >= 7)
            process.send_signal(signum)
            out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signum, err
    got = json.loads(out)
    assert got["requests"] >= 1
    assert got["cut"] == 2
    assert got["errors"] == {}
    assert got["stopped_because"] == f"stopped by {signum.name}"
    assert got["disturbed"] == []
    assert sum(got["unsent"].values()) + got["cut"] + got["requests"] == 50
    assert (tmp_path / "p.html").exists()
    assert '"end"' in (tmp_path / "r.jsonl").read_text().splitlines()[-1]


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with serving(endless) as server:
        words = ("bench", f"url:{server.url}", "--workload", "copy", "--requests", "50", "--concurrency", "2")
        with popen(words, tmp_path) as process:
            wait_for(lambda: len(server.posts) >= 7)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=10)
    assert process.returncode == 130


def test_a_signal_before_anything_was_measured_leaves_nothing(tmp_path: Path) -> None:
    async def silent(wire: Wire, request: Request) -> None:
        await wire.until_left()

    with serving(silent) as server:
        words = ("bench", f"url:{server.url}", *QUICK, "--concurrency", "1", "--json", "--output", "r.jsonl")
        with popen(words, tmp_path) as process:
            wait_for(lambda: bool(server.posts))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert json.loads(out)["requests"] == 0


def test_the_time_limit_is_no_fault(draftmark: Draftmark) -> None:
    with serving(endless) as server:
        status, got, err = bench(
            draftmark, f"url:{server.url}", "--workload", "copy", "--requests", "50", "--concurrency", "2",
            "--max-seconds", "1",
        )  # fmt: skip
    assert status == 0, err
    assert got["stopped_because"].startswith("the limit of 1 s")
    assert (got["cut"], got["disturbed"]) == (2, [])


def test_a_server_that_goes_away_is_one(draftmark: Draftmark) -> None:
    async def gone(wire: Wire, request: Request) -> None:
        if request.headers["x-request-id"] in ("bench-1", "bench-2", "bench-3"):
            await answer()(wire, request)
        else:
            wire.reset()

    with serving(gone) as server:
        status, got, _ = bench(
            draftmark, f"url:{server.url}", "--workload", "copy", "--requests", "40", "--concurrency", "1"
        )
    assert status == 40
    assert got["errors"]["reset"] >= 8
    assert any("in a row" in reason for reason in got["disturbed"])


def wait_for(seen: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- places that cannot be written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("--output", "there.txt"), ("--output", "."), ("--output", "no/such/r.jsonl"),
        ("--output", "/proc/x.jsonl"),
        ("--html", "there.txt"), ("--html", "no/such/p.html"), ("--html", "/proc/p.html"),
        ("--export", "vllm=there.txt"), ("--export", "vllm=."), ("--export", "sglang=no/such/s.jsonl"),
        ("--export", "csv"), ("--export", "vllm="),
    ],
)  # fmt: skip
def test_a_bad_place_is_told_before_anything_is_sent(
    refused: Draftmark, server: Scripted, tmp_path: Path, option: str, place: str
) -> None:
    (tmp_path / "there.txt").write_text("kept")
    done = refused("bench", f"url:{server.url}", *QUICK, "--concurrency", "1", option, place)
    assert done.status == 2, done.err
    assert done.out == ""
    assert place.rpartition("=")[2] in done.err or "form to export" in done.err
    assert server.posts == []
    assert (tmp_path / "there.txt").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.txt"]


def test_a_page_is_replaced(draftmark: Draftmark, server: Scripted, tmp_path: Path) -> None:
    (tmp_path / "p.html").write_text("<!DOCTYPE html>old")
    done = draftmark("bench", f"url:{server.url}", *QUICK, "--concurrency", "1", "--html", "p.html")
    assert done.status == 0, done.err
    assert "old" not in (tmp_path / "p.html").read_text()[:100]


def test_a_disk_that_fills_up_loses_the_requests_and_not_the_figures(server: Scripted, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    words = ("bench", f"url:{server.url}", "--workload", "copy", "--requests", "40", "--concurrency", "2", "--json")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, before[1]))
        process = popen((*words, "--output", "r.jsonl", "--html", "page.html"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 50, err
    assert json.loads(out)["requests"] == 40
    assert "could not all be written to r.jsonl" in err
    again = subprocess.run(
        [*process.args[:3], "bench", "--from", "r.jsonl", "--json"],  # type: ignore[index]
        cwd=tmp_path, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    kept = json.loads(again.stdout)
    assert 0 < kept["requests"] < 40
    assert "ends before this measurement did" in kept["disturbed"][0]


# --- words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no service is named"),
        (("--slo", "ttft:x"), "a limit is"),
        (("--slo", "ttft:1", "--goodput", "ttft:1"), "two names"),
        (("--no-stream", "--slo", "ttft:5"), "without streaming"),
        (("--from", "nowhere.jsonl"), "cannot read"),
        (("--repeat", "0"), "whole number"),
        (("--workers", "65"), "whole number"),
    ],
)
def test_words_that_cannot_be_carried_out(refused: Draftmark, words: tuple[str, ...], said: str) -> None:
    done = refused("bench", *words)
    assert (done.status, said in done.err) == (2, True), done.err


def test_from_measures_nothing(draftmark: Draftmark, server: Scripted) -> None:
    done = draftmark("bench", f"url:{server.url}", "--from", "r.jsonl")
    assert done.status == 2
    assert "measures nothing" in done.err
    assert server.requests == []


def test_a_key_that_the_server_sends_back_is_not_kept(draftmark: Draftmark, tmp_path: Path) -> None:
    async def echo(wire: Wire, request: Request) -> None:
        await wire.whole("401 Unauthorized", json.dumps({"error": request.headers["authorization"]}).encode())

    with serving(echo) as server:
        done = draftmark(
            "bench", f"url:{server.url}", *QUICK, "--concurrency", "1", "--output", "r.jsonl",
            "--header", "Authorization: Bearer sk-verysecret1",
        )  # fmt: skip
    assert done.status == 50
    assert "verysecret" not in (tmp_path / "r.jsonl").read_text() + done.out + done.err
