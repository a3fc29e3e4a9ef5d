"""What is sent to the script and read from it; the script as text, and its parts that need no systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from draftmark.errors import FailedError
from draftmark.ports import Completed
from draftmark.service.local import LocalHost
from draftmark.service.systemd.agent import Answer, Code, parse, script
from draftmark.service.systemd.holder import held_error, holder_line, is_gone, measuring_error
from draftmark.service.systemd.remote_files import read_files, write_file

FAKE_SYSTEMCTL = """\
#!/bin/sh
echo "$*" >>"$FAKE/calls"
case "$*" in
*--value*Id*) echo "$UNIT_NAME" ;;
*ActiveState*) printf 'ActiveState=inactive\\nSubState=dead\\nLoadState=loaded\\nJob=\\n' ;;
esac
exit 0
"""
SS = """\
#!/bin/sh
cat "$FAKE/ss"
"""


def test_values_are_read_in_order_and_noise_is_left_out() -> None:
    answer = parse(Completed(0, b"a=1\nnoise\na=x=y\n\xff=\xfe\nempty=\n"))
    assert (answer.code, answer.get("a"), answer.all("a")) == (Code.DONE, "x=y", ("1", "x=y"))
    assert answer.get("empty", "other") == ""
    assert answer.get("none", "other") == "other"


@pytest.mark.parametrize(("status", "code"), [(0, Code.DONE), (3, Code.LOST), (6, Code.PENDING), (2, Code.FAILED)])
def test_how_it_ended(status: int, code: Code) -> None:
    assert parse(Completed(status)).code is code


def test_a_command_that_was_killed_has_not_ended_by_itself() -> None:
    answer = parse(Completed(-9, b"seconds=1\n", "why\n", timed_out=True))
    assert answer.code is None
    assert answer.evidence == ("why", "it took too long and was killed")


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_script_is_posix_sh(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    command = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
    ended = subprocess.run(command, input=script(), capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_void_token_is_as_long_as_any(tmp_path: Path) -> None:
    """It is written over a token in place, so that a full disk cannot keep it from being written."""
    void = next(line for line in script().decode().splitlines() if line.startswith("VOID="))
    assert len(void.partition("=")[2]) == 32


@pytest.mark.parametrize("unit", ["", "a/b.service", "../x.service", ".hidden"])
def test_what_is_no_unit_is_refused(unit: str) -> None:
    ended = subprocess.run(
        ["sh", "-s", "status", unit, "--system"], input=script(), capture_output=True, check=False
    )
    assert ended.returncode == 1
    assert b"not a unit's name" in ended.stderr


class Shell:
    """Functions of the script, run with programs of our own in front of the real ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        self.program("systemctl", FAKE_SYSTEMCTL)
        self._functions = script().decode().rpartition('main "$@"')[0]

    def program(self, name: str, text: str) -> None:
        path = self._folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, text: str, **variables: str) -> str:
        path = f"{self._folder}/bin:{os.environ['PATH']}"
        environment = {"PATH": path, "FAKE": str(self._folder), "LC_ALL": "C", **variables}
        ended = subprocess.run(
            ["sh", "-s"], input=f"{self._functions}\n{text}\n", env=environment, capture_output=True, text=True
        )
        return ended.stdout + ended.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_path_in_a_unit_file_is_quoted(shell: Shell) -> None:
    assert shell.run(r"""quoted '/run/a\x2db c%i$x"d'""") == r'''"/run/a\\x2db c%%i$$x\"d"'''


def test_a_file_is_written_whole_or_not_at_all(shell: Shell, tmp_path: Path) -> None:
    target = tmp_path / "a b"
    shell.run(f"echo new | put '{target}'")
    assert target.read_text() == "new\n"
    assert "No space left" in shell.run(
        f"ln -s /dev/full '{target}.new'; echo newer | put '{target}' || echo failed"
    )
    assert target.read_text() == "new\n"
    assert not os.path.lexists(f"{target}.new")


def test_folders_that_were_made_are_removed_again_unless_used(shell: Shell, tmp_path: Path) -> None:
    made = tmp_path / "made"
    shell.run(f"make_folder '{tmp_path}/x/y z/d' '{made}'")
    (tmp_path / "x/other").touch()
    assert (tmp_path / "x/y z/d").is_dir()
    shell.run(f"unmake_folders '{made}'")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["other"]


IDLE = (
    "ESTAB 0 0 10.0.0.1:8080 10.0.0.2:5000\n"
    "\t cubic bytes_sent:700 bytes_acked:700 bytes_received:{} segs_out:1 lastsnd:{} lastrcv:{} lastack:9\n"
)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (IDLE.format(300, 40, 44), "-"),
        (IDLE.format(300, 44, 44), "-"),
        (IDLE.format(300, 44, 40), "unanswered"),
        (IDLE.format(300, 90000, 89000), "-"),  # a client that began and went silent
        (IDLE.format(300, 44, 44).replace("bytes_sent:700 bytes_acked:700 ", ""), "unanswered"),
        (IDLE.format(300, 40, 44).replace("ESTAB 0", "ESTAB 7"), "unread"),
        ("ESTAB 0 0 [::1]:8080 [::1]:5000\n\t cubic segs_out:1 lastsnd:5 lastrcv:5\n", "-"),
        ("CLOSE-WAIT 1 0 10.0.0.1:8080 10.0.0.2:5000\n\t cubic bytes_received:3 lastsnd:5 lastrcv:4\n", "unread"),
        ("CLOSE-WAIT 0 0 10.0.0.1:8080 10.0.0.2:5000\n\t cubic bytes_received:3 lastsnd:5 lastrcv:4\n", "-"),
    ],
)
def test_a_connection_is_at_rest_when_its_last_word_was_the_servers(
    shell: Shell, tmp_path: Path, text: str, verdict: str
) -> None:
    shell.program("ss", SS)
    (tmp_path / "ss").write_text(text)
    lines = shell.run("connections 8080").splitlines()
    assert [line.split()[-1] for line in lines] == [verdict]


def test_without_ss_unread_bytes_and_new_connections_are_seen(shell: Shell) -> None:
    assert "DRAFTMARK_WITHOUT_SS" not in os.environ
    text = "connections 1 && gate_strength 1"
    assert shell.run(text, DRAFTMARK_WITHOUT_SS="1") == "none\n"


def test_a_dead_process_of_this_computer_is_known_to_be_gone() -> None:
    mine = holder_line("test")
    assert not is_gone(mine)
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert is_gone(mine.replace(f'"pid": {os.getpid()}', f'"pid": {ended.pid}'))


@pytest.mark.parametrize("holder", ["", "{}", "[1]", "nonsense", '{"boot": "other", "pid": 1, "started_ticks": 0}'])
def test_of_another_computers_process_nothing_is_known(holder: str) -> None:
    assert not is_gone(holder)
    assert "llm.service" in str(held_error("llm.service", Answer(Code.HELD, (("holder", holder),))))


def test_who_measures_is_told_once_and_what_to_type() -> None:
    line = '{"who": "root@lab", "pid": 230, "since": "2026-11-29T17:50:27Z", "what": "draftmark tune"}'
    told = {"holder": line, "last_sign_s": "1", "measuring": "2026-11-29T17:51:02Z", "left_s": "44"}
    error = measuring_error("llm.service", Answer(Code.BUSY, tuple(told.items())))
    assert error.evidence == (
        "held by root@lab, pid 230, since 2026-11-29T17:50:27Z (draftmark tune)",
        "measuring since 2026-11-29T17:51:02Z; its last sign of life came 1 s ago",
    )
    assert error.next_step is not None
    assert "press Ctrl-C there, or type `kill 230` on lab" in error.next_step
    assert error.next_step.endswith("in 44 s")
    assert error.exit_status == 30
    held = held_error("llm.service", Answer(Code.HELD, tuple(told.items())))
    assert held.evidence[0] == error.evidence[0]
    assert "draftmark restore unit:llm.service --force" in (held.next_step or "")


def test_files_of_a_host(tmp_path: Path) -> None:
    path = tmp_path / "a 'b'"
    write_file(LocalHost(), str(path), b"\x00\xff", 0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    assert read_files(LocalHost(), [str(path), "/none"]) == {str(path): b"\x00\xff", "/none": None}
    with pytest.raises(FailedError, match="could not be written"):
        write_file(LocalHost(), str(tmp_path / "none/x"), b"x")
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
