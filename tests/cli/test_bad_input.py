"""Wrong words and wrong worlds: one clear message, the documented exit status, nothing left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.testing.processes import none_left

Draftmark = Callable[..., Any]
BOOTED = Path("/run/systemd/system").is_dir()
NO_UNIT = (2, "there is no unit no-such.service") if BOOTED else (50, "systemd does not run")


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        (("tune", "--depth", "0..a"), 2, "'a' is not a whole number"),
        (("tune", "--depth", "8..0"), 2, "runs backwards"),
        (("tune", "--depth", ""), 2, "a number is missing"),
        (("tune", "--depth", "-1"), 2, ""),
        (("tune", "--concurrency", "0"), 2, "0 requests at once"),
        (("tune", "--rounds", "0"), 2, "whole number from 1 up"),
        (("tune", "--frobnicate"), 2, "--frobnicate"),
        (("frobnicate",), 2, "frobnicate"),
        (("tune", "gpu1"), 2, "gpu1"),
        (("tune", "unit:no-such.service"), *NO_UNIT),
        (("tune", "url:http://127.0.0.1:9"), 2, "cannot be started"),
        (("tune", "cmd:vllm serve x"), 2, "no known engine"),
        (("tune", "cmd:llama-server -m /nonexistent.gguf"), 2, "cannot read the model"),
        (("tune", "cmd:llama-server --draft-max 3"), 2, "no longer has the flag --draft-max"),
        (("tune", "cmd:llama-server 'x"), 2, "quot"),
        (("tune", "--resume", "/nonexistent"), 2, "is not a run directory"),
        (("report", "/nonexistent"), 2, "is not a run directory"),
        (("compare", "/nonexistent", "/nonexistent"), 2, "is not a run directory"),
        (("bench", "url:ftp://x"), 2, "ftp"),
        (("bench", "url:http://127.0.0.1:9"), 2, "refused"),
        (("bench", "url:http://127.0.0.1:9", "--header", "x"), 2, "a header is"),
        (("inspect", "url:http://127.0.0.1:9"), 2, "nothing answers"),
        (("bench", "--from", "no-such-file.jsonl"), 2, "--output FILE"),
        (("plan", "cmd:llama-server", "--depth", "1,2"), 30, "none of these depths"),
        (("plan", "cmd:llama-server", "--method", "medusa"), 2, "no drafting method"),
        (("plan", "cmd:llama-server", "--prompts", "/nonexistent.jsonl"), 2, "nonexistent.jsonl"),
        (("plan", "cmd:llama-server", "--workload", "poetry"), 2, "poetry"),
    ],
)
def test_one_message_and_the_exit_status(
    refused: Draftmark, words: tuple[str, ...], status: int, part: str
) -> None:
    done = refused(*words)
    assert done.status == status, done.err
    assert part in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_missing_program_says_so(draftmark: Draftmark, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    service = f"cmd:/nonexistent/llama-server -m {model} --port 18977"
    done = draftmark("tune", service, "--depth", "off,4", "--max-foreign-cpu", "1000")  # a busy host is no matter
    assert done.status == 50
    assert "/nonexistent/llama-server" in done.err
    assert "Traceback" not in done.err


def test_not_a_gguf(draftmark: Draftmark, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"PK\x03\x04 no model")
    done = draftmark("tune", f"cmd:llama-server -m {model}", "--depth", "off,4")
    assert (done.status, "is not a GGUF file" in done.err) == (2, True)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{", b"\xff\xfe\x00", b'{"x": 1}\n'])
def test_prompt_files(refused: Draftmark, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(content)
    done = refused("plan", "cmd:llama-server", "--prompts", str(path))
    assert done.status == 2
    assert "prompts.jsonl" in done.err
    assert "Traceback" not in done.err


def test_a_run_directory_that_is_taken_or_closed(draftmark: Draftmark, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "x").touch()
    done = draftmark("tune", f"cmd:llama-server -m {model}", "--run", str(taken))
    assert (done.status, "not an empty directory" in done.err) == (2, True)
    done = draftmark("tune", f"cmd:llama-server -m {model}", "--run", "/proc/nowhere")
    assert (done.status, "cannot write to the run directory" in done.err) == (2, True)


def test_plan_shows_the_exact_change_and_starts_nothing(draftmark: Draftmark) -> None:
    done = draftmark(
        "plan", "cmd:llama-server -m x.gguf --metrics", "--depth", "off,2,8", "--rounds", "1", "--json"
    )
    assert done.status == 2  # the model is looked at first
    done = draftmark("plan", "cmd:llama-server --metrics --api-key sk-secret", "--depth", "off,2,8", "--json")
    document = json.loads(done.out)
    arms = {arm["arm"]: arm for arm in document["arms"]}
    assert arms["d2"]["verdict"] == "refused"
    assert "+ --spec-ngram-simple-size-m 8" in arms["d8"]["command_diff"]
    assert document["restarts"] == len(document["schedule"])
    assert "sk-secret" not in done.out
    assert none_left(0)


def test_a_dead_baseline_is_off_and_said_so(draftmark: Draftmark) -> None:
    words = "llama-server --spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 2"
    document = json.loads(draftmark("plan", f"cmd:{words}", "--depth", "2,8", "--json").out)
    assert document["baseline"] == "off"
    assert [arm["arm"] for arm in document["arms"]] == ["off", "d8"]
    assert "depth 2 drafts nothing" in document["notes"][0]


def test_a_refused_run_leaves_no_directory(draftmark: Draftmark, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = draftmark("tune", f"cmd:llama-server -m {model} --port {port}", "--depth", "off,4")
    assert done.status == 30
    assert f"something else listens on http://127.0.0.1:{port}" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_help_names_every_verb(draftmark: Draftmark, refused: Draftmark) -> None:
    done = draftmark("--help")
    assert done.status == 0
    for verb in ("tune", "plan", "inspect", "bench", "why", "report", "compare"):
        assert verb in done.out
        assert refused(verb, "--help").status == 0


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    line = f"{sys.executable} -m draftmark --help | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, cwd=tmp_path)
    assert "Traceback" not in done.stderr


def test_no_cache_and_no_index(draftmark: Draftmark, tmp_path: Path) -> None:
    env = {"DRAFTMARK_CACHE": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = draftmark("tune", env=env)
    assert done.status == 50
    assert "xllamacpp" in done.err
    assert "Traceback" not in done.err
    closed = draftmark("tune", env={**env, "DRAFTMARK_CACHE": "/proc/nowhere"})
    assert closed.status == 2
    assert "/proc/nowhere" in closed.err


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """`nohup draftmark … &` has to survive the terminal's end."""
    line = f"trap '' HUP; exec {sys.executable} -c \"{_HUP}\""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "SIG_IGN True"


_HUP = (
    "import signal; from draftmark.cli import main; main._own_signals(); "
    "print(signal.getsignal(signal.SIGHUP).name, callable(signal.getsignal(signal.SIGINT)))"
)


def test_who_leaves_at_once_is_told_what_is_left_to_do(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _TWICE], capture_output=True, text=True, cwd=tmp_path, timeout=30)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.splitlines()[-2:] == ["llm.service is not put back", "at once: draftmark restore"]
    assert "gone" not in done.stderr


_TWICE = """
import os, signal, time
from draftmark.cli import main
from draftmark.cli.leaving import told
from draftmark.errors import Interrupted

main._own_signals()
with told(lambda: "gone"):
    pass
try:
    with told(lambda: ""), told(lambda: "llm.service is not put back\\nat once: draftmark restore"):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
except Interrupted:
    pass
"""


def test_a_signal_that_meets_a_destructor_is_not_lost(tmp_path: Path) -> None:
    """Python swallows what is raised in a destructor; the one who pressed Ctrl-C must not have to know."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_DESTRUCTOR], capture_output=True, text=True, cwd=tmp_path, timeout=30
    )
    assert done.stdout.split() == ["caught", "2"], done.stderr
    assert done.stderr.count("stopping") == 1
    assert "Traceback" not in done.stderr


_IN_DESTRUCTOR = """
import os, signal, time
from draftmark.cli import main
from draftmark.errors import Interrupted

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

main._own_signals()
try:
    Closing()
    time.sleep(10)
    print("lost")
except Interrupted as stop:
    print("caught", stop.signum)
"""
