"""The local host: real commands, bounded in time and size, none left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from draftmark.service.local import LocalHost

HOST = LocalHost()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has waited for it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_output_status_and_stderr_are_told_apart() -> None:
    ended = HOST.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (ended.status, ended.stdout, ended.stderr) == (3, b"out\n", "err\n")
    assert not any((ended.ok, ended.cut, ended.timed_out, ended.missing))


def test_a_death_by_signal_is_a_negative_status() -> None:
    assert HOST.run(python("import os; os.kill(os.getpid(), 15)")).status == -15


@pytest.mark.parametrize("argv", [["no-such-program-at-all"], ["/"], ["nul\0byte"]])
def test_what_cannot_be_run_is_missing_and_no_error(argv: list[str]) -> None:
    ended = HOST.run(argv)
    assert ended.missing
    assert ended.status is None
    assert ended.stderr
    assert not ended.ok


def test_the_environment_has_no_locale_no_pager_no_stdin_and_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    code = "import os,sys; print([os.environ[k] for k in ('LC_ALL','TZ','SYSTEMD_PAGER')], repr(sys.stdin.read()))"
    assert HOST.run(python(code)).stdout == b"['C', 'UTC', ''] ''\n"


def test_output_beyond_the_limit_is_cut_and_the_command_killed() -> None:
    ended = HOST.run(python("import os\nwhile True: os.write(1, b'x' * 4096)"), limit_bytes=10_000)
    assert ended.cut
    assert ended.stdout == b"x" * 10_000
    assert ended.status == -9


def test_output_at_the_limit_is_whole() -> None:
    ended = HOST.run(python("print('x' * 9, end='')"), limit_bytes=9)
    assert ended.ok
    assert not ended.cut


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! $$ > {pids}; echo begun; wait"
    ended = HOST.run(["sh", "-c", script], timeout_s=1)
    assert ended.timed_out
    assert not ended.cut
    assert ended.stdout == b"begun\n"
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_much_stderr_blocks_nothing_and_is_cut() -> None:
    ended = HOST.run(
        python("import sys\nfor i in range(40000): sys.stderr.write('x' * 79 + chr(10))\nprint('end')")
    )
    assert ended.stdout == b"end\n"
    assert 1 << 16 <= len(ended.stderr) < 1 << 19


def test_a_stream_is_killed_when_it_is_closed_half_way() -> None:
    stream = HOST.stream(python("import os\nprint(os.getpid(), flush=True)\nwhile True: os.write(1, b'x' * 4096)"))
    first = next(iter(stream))
    ended = stream.close()
    assert ended.cut
    assert gone(int(first.split()[0]))
    assert stream.close() is ended
    assert list(stream) == []


def test_a_stream_hands_out_more_than_one_would_keep() -> None:
    stream = HOST.stream(python("import os\nfor _ in range(400): os.write(1, b'y' * 65536)"))
    assert sum(len(chunk) for chunk in stream) == 400 * 65536
    assert stream.close().ok


def test_a_stream_that_nobody_reads_leaves_no_process() -> None:
    stream = HOST.stream(["sleep", "600"])
    assert stream.close().status == -9


def test_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0\xff" * 10)
    assert HOST.read(str(tmp_path / "file"), 3) == b"\0\xff\0"
    assert HOST.read("/proc/self/cgroup")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("fifo", ".", "missing"):
        with pytest.raises(OSError, match=r"."):
            HOST.read(str(tmp_path / path))


def test_who_and_where_it_is() -> None:
    assert HOST.name
    assert HOST.is_root == (os.geteuid() == 0)


@pytest.mark.parametrize("size", [0, 5, 100_000, 3_000_000])
def test_a_command_is_given_its_input_whole_while_its_output_is_read(size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert LocalHost().run(["cat"], input=data).stdout == data


def test_a_command_that_does_not_want_its_input_is_no_error() -> None:
    assert LocalHost().run(["true"], input=b"x" * 1_000_000).ok
    assert LocalHost().run(["head", "-c3"], input=b"x" * 1_000_000).stdout == b"xxx"


def test_a_command_that_never_reads_its_input_ends_in_time() -> None:
    ended = LocalHost().run(["sleep", "30"], input=b"x" * 1_000_000, timeout_s=0.3)
    assert ended.timed_out
