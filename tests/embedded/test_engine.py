"""The real engines and the real model: fetched once into the user's own cache, then served from there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from draftmark.embedded.progress import NullProgress
from draftmark.embedded.provision import Embedded, provision

pytestmark = pytest.mark.engine

SPECULATION = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8")
# Repetition is what n-grams find again.
PROMPT = "Repeat this list, line by line, three times:\n" + "red apple\ngreen pear\nblue plum\nblack grape\n" * 3


@pytest.fixture(scope="module")
def xllamacpp() -> Embedded:
    return provision(NullProgress(), engine="xllamacpp")


def spawn(ready: Embedded, log: Path, *flags: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            [*ready.command, *flags], env={**os.environ, **ready.env}, stdout=out, stderr=subprocess.STDOUT
        )


def url(ready: Embedded) -> str:
    return f"http://127.0.0.1:{ready.command[ready.command.index('--port') + 1]}"


def wait_until_ready(ready: Embedded, process: subprocess.Popen[bytes], log: Path) -> float:
    began = time.monotonic()
    while time.monotonic() - began < 90:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            with urllib.request.urlopen(url(ready) + "/health", timeout=5) as answer:
                assert json.load(answer) == {"status": "ok"}
                return time.monotonic() - began
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise AssertionError(log.read_text(errors="replace"))


@contextmanager
def serving(ready: Embedded, log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(ready, log, *flags)
    try:
        wait_until_ready(ready, process, log)
        yield process
    finally:
        process.kill()
        process.wait()


def complete(ready: Embedded, tokens: int) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        url(ready) + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_it_serves_and_drafts_then_leaves_at_once(xllamacpp: Embedded, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(xllamacpp, log, *SPECULATION) as process:
        timings = complete(xllamacpp, 64)["timings"]
        assert timings["predicted_n"] == 64
        assert timings["draft_n"] > 0
        assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
        with urllib.request.urlopen(url(xllamacpp) + "/metrics", timeout=5) as answer:
            assert f"spec_decode_num_draft_tokens_total {timings['draft_n']}" in answer.read().decode()
        with urllib.request.urlopen(url(xllamacpp) + "/slots", timeout=5) as answer:
            slots = json.load(answer)
        assert [slot["speculative"] for slot in slots] == [True] * 4
        began = time.monotonic()
        process.terminate()
        assert process.wait(10) == 0
        assert time.monotonic() - began < 2
    assert "cleaning up before exit..." in log.read_text()


def test_in_flight_it_leaves_at_once_too(xllamacpp: Embedded, tmp_path: Path) -> None:
    with serving(xllamacpp, tmp_path / "log") as process:
        cut: list[Exception] = []

        def ask() -> None:
            try:
                complete(xllamacpp, 2000)
            except (urllib.error.URLError, OSError) as error:
                cut.append(error)

        client = threading.Thread(target=ask)
        client.start()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with urllib.request.urlopen(url(xllamacpp) + "/slots", timeout=5) as answer:
                if any(slot["is_processing"] for slot in json.load(answer)):
                    break
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 2
        client.join(10)
        assert len(cut) == 1  # it was still being answered


def test_while_loading_it_leaves_at_once_too(xllamacpp: Embedded, tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = spawn(xllamacpp, log)
    try:
        deadline = time.monotonic() + 30
        while b"loading model" not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.terminate()
        began = time.monotonic()
        assert process.wait(10) == -signal.SIGTERM
        assert time.monotonic() - began < 2
        assert "model loaded" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def failed(ready: Embedded, log: Path, *flags: str) -> str:
    """What a server that must not start wrote; its status must be 1."""
    process = spawn(ready, log, *flags)
    try:
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
    return log.read_text(errors="replace")


def test_port_in_use(xllamacpp: Embedded, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        text = failed(xllamacpp, tmp_path / "log", "--port", port)
    assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in text


def test_not_a_gguf_file(xllamacpp: Embedded, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_text("not a model")
    assert "invalid magic characters: 'not '" in failed(xllamacpp, tmp_path / "log", "-m", str(bad))


def test_truncated_model(xllamacpp: Embedded, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    with xllamacpp.model.open("rb") as model:
        short.write_bytes(model.read(20_000_000))
    text = failed(xllamacpp, tmp_path / "log", "-m", str(short))
    assert "data is not within the file bounds" in text


def test_bad_flag(xllamacpp: Embedded, tmp_path: Path) -> None:
    assert failed(xllamacpp, tmp_path / "log", "--modell", "x") == "error: invalid argument: --modell\n"


def test_the_other_engine_serves_the_same_model(tmp_path: Path) -> None:
    ready = provision(NullProgress(), engine="llama-server")
    with serving(ready, tmp_path / "log", *SPECULATION) as process:
        timings = complete(ready, 32)["timings"]
        assert timings["predicted_n"] == 32
        assert timings["draft_n"] > 0
        process.terminate()
        assert process.wait(10) == 0
