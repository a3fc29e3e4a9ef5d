"""What a run shows on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHOW = """
import sys
from draftmark.cli.output import progress_console
from draftmark.cli.progress import RunProgress
from draftmark.model import Arm, Trial, TrialStatus
from draftmark.run.records import Slot

trial = Trial(number=1, round=1, arm=Arm(4), status=TrialStatus.MEASURED, started_at="", total_s=3.0, start_s=1.5)
with RunProgress(progress_console(), total=2, done=0) as shown:
    slot = Slot(number=1, round=1, arm=Arm(4))
    shown.trial_begins(slot)
    shown.phase(slot, "starting depth 4", 60.0)
    shown.trial_ends(trial)
    shown.note("a note")
    print("somebody else's line", file=sys.stderr)
print("over", file=sys.stderr)
"""


def on_a_terminal(command: list[str], cwd: Path, term: str, seconds: float) -> tuple[int, str]:
    """Exit status, and all that came out."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": term}
    )
    os.close(theirs)
    said, deadline = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    said += os.read(ours, 65536)
                except OSError:  # the other end is closed
                    return process.wait(10), said.decode("utf-8", "replace")
        raise AssertionError(f"not over after {seconds:.0f} s: {said[-2000:]!r}")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_bars_and_lines(tmp_path: Path, term: str) -> None:
    status, said = on_a_terminal([sys.executable, "-c", SHOW], tmp_path, term, 30.0)
    assert status == 0, said
    for text in ("depth 4", "ready in 1.5 s", "a note", "somebody else's line", "over"):
        assert text in said
