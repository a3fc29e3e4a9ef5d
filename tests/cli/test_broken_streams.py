"""Output that has nowhere to go: a status of the table, and nothing of Python's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SURFACE = next((Path(__file__).parents[1] / "data" / "surfaces").glob("*.json"))
TOLD, WRONG = ("tune", "--surface", str(SURFACE)), ("plan", "nonsense:")


def run(tmp_path: Path, words: tuple[str, ...], stdout: int, stderr: int | None = None) -> tuple[int, str]:
    command = (sys.executable, "-P", "-m", "draftmark", *words)
    done = subprocess.run(command, stdout=stdout, stderr=stderr or subprocess.PIPE, cwd=tmp_path, check=False)
    return done.returncode, (done.stderr or b"").decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        assert run(tmp_path, TOLD, full.fileno()) == (50, "error: No space left on device: output\n")
        assert run(tmp_path, TOLD, full.fileno(), full.fileno())[0] == 50
        assert run(tmp_path, WRONG, full.fileno(), full.fileno())[0] == 2


@pytest.mark.parametrize(("words", "status"), [(TOLD, 0), (WRONG, 2)])
def test_a_reader_that_leaves_is_no_failure(tmp_path: Path, words: tuple[str, ...], status: int) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    ended, said = run(tmp_path, words, theirs)
    assert ended == status
    assert "Exception ignored" not in said
    assert "Broken" not in said
    assert run(tmp_path, words, theirs, theirs)[0] == status
    os.close(theirs)
