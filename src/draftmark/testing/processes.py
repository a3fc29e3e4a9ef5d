"""A real `draftmark` in a process of its own, and finding every server that it ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_MARKER = b"DRAFTMARK_INSTANCE="  # service/guard.py puts it into the environment of all that it starts
# Handed down to everything that `popen` starts, so that only our own are found beside another test run.
_TAG = f"DRAFTMARK_TEST={os.getpid()}-{time.time_ns()}"


def _default_signals() -> None:
    """A test run in the background may have SIGINT ignored, and an ignored signal is handed down."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)


def popen(words: tuple[str, ...], cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A running `draftmark`, in a session of its own, so that signals reach it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "draftmark", *words],
        cwd=cwd,
        env={**os.environ, **(env or {}), **dict([_TAG.split("=")])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_default_signals,
    )


def servers() -> list[int]:
    """Every process that a `draftmark` of ours has under its guard and is no zombie."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            environment = (entry / "environ").read_bytes()
            if state != "Z" and _MARKER in environment and _TAG.encode() in environment:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def none_left(within_s: float) -> bool:
    """Whether every server is gone before the time is up."""
    end = time.monotonic() + within_s
    while servers():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
