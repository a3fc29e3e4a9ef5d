"""The real `draftmark` as a fixture, and the real embedded engine behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftmark.testing.processes import popen


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    out: str
    err: str


@pytest.fixture
def draftmark(tmp_path: Path) -> Callable[..., Finished]:
    def run(*words: str, env: Mapping[str, str] | None = None, timeout_s: float = 120.0) -> Finished:
        with popen(words, tmp_path, env) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Finished(process.returncode, out, err)

    return run


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Finished]]:
    """As `draftmark`, without a process: for words that end before anything is started, in a tenth of the time."""
    from draftmark.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*words: str) -> Finished:
        return Finished(main(words), *capfd.readouterr())

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def on_one_cpu() -> Iterator[None]:
    """The embedded engine then takes one thread. With two, any third process makes it wait at every barrier."""
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(whole)})
    yield
    os.sched_setaffinity(0, whole)


@pytest.fixture(scope="session")
def embedded_command() -> tuple[tuple[str, ...], dict[str, str]]:
    """Command line and environment of the embedded engine, fetched on the first call of a fresh machine."""
    from draftmark.embedded.progress import NullProgress
    from draftmark.embedded.provision import provision

    ready = provision(NullProgress())
    return ready.command, dict(ready.env)
