"""A unit's words are copied from the files that they are sent to."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftmark.errors import StorageError
from draftmark.service.local import LocalHost
from draftmark.service.systemd.unit_log import FileLogs


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return tmp_path / "served.log"


def test_only_what_is_new_is_copied(tmp_path: Path, served: Path) -> None:
    served.write_bytes(b"of an earlier run\n")
    logs = FileLogs(LocalHost(), {str(served): False}, tmp_path / "ours.log")
    logs.mark()
    for text in (b"one\n", b"tw", b"o\n"):
        with served.open("ab") as file:
            file.write(text)
        logs.gather()
    logs.gather()
    assert (tmp_path / "ours.log").read_bytes() == b"one\ntwo\n"


def test_one_that_is_emptied_at_the_start_is_read_from_its_beginning(tmp_path: Path, served: Path) -> None:
    served.write_bytes(b"of an earlier run\n")
    logs = FileLogs(LocalHost(), {str(served): True}, tmp_path / "ours.log")
    logs.mark()
    served.write_bytes(b"and this is longer than the earlier run\n")
    logs.gather()
    assert (tmp_path / "ours.log").read_bytes() == b"and this is longer than the earlier run\n"


def test_one_that_is_rotated_away_is_read_from_its_new_beginning(tmp_path: Path, served: Path) -> None:
    served.write_bytes(b"of an earlier run, long\n")
    logs = FileLogs(LocalHost(), {str(served): False}, tmp_path / "ours.log")
    logs.mark()
    served.unlink()
    logs.gather()
    served.write_bytes(b"new\n")
    logs.gather()
    assert (tmp_path / "ours.log").read_bytes() == b"new\n"


def test_one_that_is_not_there_yet_is_read_when_it_is(tmp_path: Path, served: Path) -> None:
    logs = FileLogs(LocalHost(), {str(served): False, str(tmp_path / "second"): False}, tmp_path / "ours.log")
    logs.mark()
    served.write_bytes(b"out\n")
    (tmp_path / "second").write_bytes(b"err\n")
    logs.gather()
    assert (tmp_path / "ours.log").read_bytes() == b"out\nerr\n"


def test_a_log_of_ours_that_cannot_be_written_is_told(tmp_path: Path, served: Path) -> None:
    logs = FileLogs(LocalHost(), {str(served): False}, tmp_path / "none" / "ours.log")
    logs.mark()
    served.write_bytes(b"x\n")
    with pytest.raises(StorageError, match="cannot be written"):
        logs.gather()
