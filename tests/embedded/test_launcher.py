"""The launcher's command line, and how it ends, with a stand-in for the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from draftmark.embedded import launcher

from .fakes import XLLAMACPP

Process = subprocess.Popen[str]
LAUNCHER = [sys.executable, "-S", "-P", str(Path(launcher.__file__))]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the stand-in is found."""
    base = tmp_path_factory.mktemp("engine")
    (base / "xllamacpp.py").write_text(XLLAMACPP)
    return {**os.environ, "PYTHONPATH": str(base), "PYTHONDONTWRITEBYTECODE": "1"}


def run(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCHER, *words], env=env, capture_output=True, text=True, timeout=20, check=False)


@contextmanager
def started(env: dict[str, str], *words: str, by: tuple[str, ...] = ()) -> Iterator[tuple[Process, dict[str, Any]]]:
    """A server under way, and what its engine was given."""
    command = [*by, *LAUNCHER, *words]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process, json.loads(process.stderr.readline())
        finally:
            process.kill()


def wait_until_loaded(process: Process) -> None:
    """The engine's thread is gone (the stand-in keeps none), and the main thread sleeps: it waits for a signal."""
    asleep = 0
    for _ in range(1000):
        status = Path(f"/proc/{process.pid}/status").read_text()
        asleep = asleep + 1 if "Threads:\t1\n" in status and "State:\tS" in status else 0
        if asleep == 5:
            return
        time.sleep(0.01)
    raise AssertionError("not loaded")


# First lines as llama-server prints them for the same words (captured from build 9a3bf2b).
REFUSED = [
    (["--modell", "x"], "error: invalid argument: --modell"),
    (["--port=3"], "error: invalid argument: --port=3"),
    (["stray"], "error: invalid argument: stray"),
    (["--no-metrics"], "error: invalid argument: --no-metrics"),
    (["--port"], 'error while handling argument "--port": expected value for argument'),
    (["--port", "abc"], 'error while handling argument "--port": stoi'),
    (["--port", "99999999999"], 'error while handling argument "--port": stoi'),
    (["-c", "abc"], 'error while handling argument "-c": stoi'),
    (["-s", "abc"], 'error while handling argument "-s": stoul'),
    (["-np", "0"], 'error while handling argument "-np": error: invalid value for n_parallel'),
    (["--spec-type", "medusa"], 'error while handling argument "--spec-type": unknown speculative type: medusa'),
    (
        ["--spec-ngram-simple-size-n", "0"],
        'error while handling argument "--spec-ngram-simple-size-n": '
        "ngram size N must be between 1 and 1024 inclusive",
    ),
    (
        ["--spec-ngram-simple-size-m", "2000"],
        'error while handling argument "--spec-ngram-simple-size-m": '
        "ngram size M must be between 1 and 1024 inclusive",
    ),
    (
        ["--spec-ngram-simple-min-hits", "0"],
        'error while handling argument "--spec-ngram-simple-min-hits": ngram min hits must be at least 1',
    ),
    (
        ["--draft-max", "4"],
        'error while handling argument "--draft-max": '
        "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max",
    ),
    (
        ["--draft-min", "3"],
        'error while handling argument "--draft-min": '
        "the argument has been removed. use --spec-draft-n-min or --spec-ngram-mod-n-min",
    ),
    (
        ["--spec-ngram-size-n", "3"],
        'error while handling argument "--spec-ngram-size-n": '
        "the argument has been removed. use the respective --spec-ngram-*-size-n",
    ),
]


@pytest.mark.parametrize(("words", "line"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_refused_words(words: list[str], line: str) -> None:
    with pytest.raises(launcher.ArgumentError) as caught:
        launcher.parse(["-m", "x.gguf", *words])
    lines = str(caught.value).splitlines()
    assert lines[0] == line
    if line.startswith("error while"):
        assert "usage:" in lines
        assert lines[-1] == "to show complete usage, run with -h"
        assert words[0] in str(caught.value).split("usage:")[1]


def test_refused_words_end_with_status_1_on_stderr(engine: dict[str, str]) -> None:
    done = run(engine, "-m", "x.gguf", "--modell", "x")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: invalid argument: --modell\n")


def test_without_a_model_it_refuses(engine: dict[str, str]) -> None:
    done = run(engine, "--port", "1")
    assert (done.returncode, done.stderr) == (1, "error: --model is required\n")


def test_without_the_engine_it_says_so(tmp_path: Path) -> None:
    done = run({"PYTHONPATH": str(tmp_path)}, "-m", "x.gguf")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the xllamacpp engine cannot be loaded: No module named 'xllamacpp'\n"


def test_version_and_help(engine: dict[str, str]) -> None:
    version = run(engine, "--version")
    assert (version.returncode, version.stdout) == (0, "")
    assert version.stderr == "version: 1.0 (xllamacpp, fake)\nbuilt with cc for here\n"
    usage = run(engine, "--help")
    assert usage.returncode == 0
    assert all(name in usage.stdout for flag in launcher.FLAGS for name in flag.names)


def test_numbers_are_read_as_c_reads_them() -> None:
    assert launcher.integer(" 12abc") == 12
    assert launcher.seed("-1") == 2**32 - 1
    values = launcher.parse(["-c", "1", "--ctx-size", "2"])
    assert list(values.values()) == [2]


def test_every_flag_reaches_the_engine(engine: dict[str, str]) -> None:
    words = "-m idle --host 0.0.0.0 --port 81 -c 100 -np 3 -t 5 -tb 6 -b 7 -ub 8 -no-kvu --metrics --no-slots"
    words += " --no-warmup -s 9 --api-key a,b -lv 2 -md draft.gguf --spec-draft-n-max 10 --spec-draft-n-min 1"
    words += " --spec-type draft-simple,ngram-map-k4v --spec-ngram-simple-size-n 11 --spec-ngram-simple-size-m 12"
    words += " --spec-ngram-simple-min-hits 2"
    with started(engine, *words.split()) as (_, given):
        pass
    assert given == {
        "model": {"path": "idle"},
        "hostnames": ["0.0.0.0"],
        "port": 81,
        "n_ctx": 100,
        "n_parallel": 3,
        "cpuparams": {"n_threads": 5},
        "cpuparams_batch": {"n_threads": 6},
        "n_batch": 7,
        "n_ubatch": 8,
        "kv_unified": False,
        "endpoint_metrics": True,
        "endpoint_slots": False,
        "warmup": False,
        "sampling": {"seed": 9},
        "api_keys": ["a", "b"],
        "verbosity": 2,
        "speculative": {
            "types": [1, 8],
            "ngram_simple": {"size_n": 11, "size_m": 12, "min_hits": 2},
            "draft": {"mparams": {"path": "draft.gguf"}, "n_max": 10, "n_min": 1},
        },
    }


def test_defaults_are_llama_servers(engine: dict[str, str]) -> None:
    with started(engine, "-m", "idle") as (_, given):
        pass
    cpus = os.cpu_count()
    assert (given["n_parallel"], given["kv_unified"], given["hostnames"]) == (4, True, ["127.0.0.1"])
    assert (given["cpuparams"], given["cpuparams_batch"]) == ({"n_threads": cpus}, {"n_threads": cpus})


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_at_once_with_status_0(engine: dict[str, str], signum: int) -> None:
    with started(engine, "-m", "idle") as (process, _):
        wait_until_loaded(process)
        process.send_signal(signum)
        began = time.monotonic()
        _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert time.monotonic() - began < 2
    assert err.endswith("cleaning up before exit...\n")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_at_once_while_it_loads(engine: dict[str, str], signum: int) -> None:
    with started(engine, "-m", "slow") as (process, _):
        process.send_signal(signum)
        began = time.monotonic()
        process.communicate(timeout=10)
    assert process.returncode == -signum
    assert time.monotonic() - began < 2


def test_ignored_interrupt_is_heard_all_the_same(engine: dict[str, str]) -> None:
    """A shell starts its background jobs with SIGINT ignored."""
    shell = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    with started(engine, "-m", "idle", by=shell) as (process, _):
        wait_until_loaded(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_engine_that_does_not_come_up_ends_it_with_status_1(engine: dict[str, str]) -> None:
    done = run(engine, "-m", "broken")
    assert done.returncode == 1
    assert done.stderr.endswith("Failed to init server, please check the input params.\n")


def test_process_shows_what_it_is(engine: dict[str, str]) -> None:
    with started(engine, "-m", "idle") as (process, _):
        assert Path(f"/proc/{process.pid}/comm").read_text() == "draftmark-llama\n"
