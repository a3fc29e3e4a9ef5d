"""What every Host must do, as tests: subclass `HostContract`, give a fixture `host`, and collect it.

The host must be this computer, however it is reached: what a command leaves behind is looked for in /proc here.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from draftmark.ports import Host

_PATIENCE_S = 20.0
_WORDS = (
    "a b",
    "!x",
    "n\nl",
    "'q'",
    '"',
    "\\",
    "\\n",
    "$HOME",
    "`id`",
    "ä\udcff",
    "*",
    "~",
    "a=b",
    "",
    "{a,b}",
    "%1",
)


def gone(pid: int) -> bool:
    """Whether a process ends in time, be it that nobody has waited for it."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def sh(script: str) -> Sequence[str]:
    """A command that is a script."""
    return ("sh", "-c", script)


class Echo:
    """A server that answers the first bytes of a connection with themselves, and its end with `end`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
            connection.sendall(b"end")

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def received(connection: socket.socket) -> bytes:
    """Everything up to the end."""
    data = bytearray()
    while chunk := connection.recv(1 << 16):
        data += chunk
    return bytes(data)


def _exchange(where: tuple[str, int]) -> bytes:
    with socket.create_connection(where, timeout=_PATIENCE_S) as connection:
        connection.sendall(b"x")
        return received(connection)


class HostContract:
    """Tests."""

    @pytest.fixture
    def host(self) -> Host:
        """The host, which is this computer."""
        raise NotImplementedError

    def test_output_status_and_stderr_are_told_apart(self, host: Host) -> None:
        """Each is where it belongs."""
        ended = host.run(sh("echo out; echo err >&2; exit 3"))
        assert (ended.status, ended.stdout, ended.stderr) == (3, b"out\n", "err\n")
        assert not any((ended.ok, ended.cut, ended.timed_out, ended.missing))

    @pytest.mark.parametrize("status", [0, 1, 125, 126, 127, 128, 137, 143, 255])
    def test_every_exit_status_is_kept(self, host: Host, status: int) -> None:
        """None is taken for a signal, or for a program that is not there."""
        ended = host.run(sh(f"exit {status}"))
        assert ended.status == status
        assert not ended.missing

    @pytest.mark.parametrize("number", [1, 6, 9, 13, 15])
    def test_a_death_by_signal_is_a_negative_status(self, host: Host, number: int) -> None:
        """Also of a signal that another program is fond of."""
        assert host.run(sh(f"ulimit -c 0; kill -{number} $$")).status == -number

    @pytest.mark.parametrize("argv", [("no-such-program-at-all", "x"), ("/",), ("nul\0byte",), ("",)])
    def test_what_cannot_be_run_is_missing_and_no_error(self, host: Host, argv: Sequence[str]) -> None:
        """It is an answer."""
        ended = host.run(argv)
        assert ended.missing
        assert ended.status is None
        assert ended.stderr
        assert not ended.ok

    def test_words_arrive_as_they_are(self, host: Host) -> None:
        """Whatever a shell would make of them."""
        said = host.run(("printf", r"%s\001", *_WORDS)).stdout
        assert said.split(b"\1")[:-1] == [os.fsencode(word) for word in _WORDS]

    def test_a_long_command_line_arrives(self, host: Host) -> None:
        """One word may be as long as a system takes."""
        assert host.run(("printf", "%s", "x" * 100_000)).stdout == b"x" * 100_000

    def test_no_locale_no_pager_no_stdin_and_utc(self, host: Host) -> None:
        """Output is the same everywhere."""
        said = host.run(sh('echo "$LC_ALL $TZ ${SYSTEMD_PAGER-unset} $PAGER"; cat; [ -t 1 ] || echo none')).stdout
        assert said == b"C UTC  cat\nnone\n"

    @pytest.mark.parametrize("size", [1, 100_000, 5_000_000])
    def test_input_arrives_whole_while_output_is_read(self, host: Host, size: int) -> None:
        """All bytes, in both directions."""
        data = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)
        ended = host.run(("cat",), input=data)
        assert ended.ok
        assert ended.stdout == data

    def test_a_script_may_be_the_input(self, host: Host) -> None:
        """Of a shell that is told so."""
        ended = host.run(("sh", "-s", "word"), input=b'echo "$1"\nexit 4\n')
        assert (ended.status, ended.stdout) == (4, b"word\n")

    def test_input_that_nobody_wants_is_no_error(self, host: Host) -> None:
        """The command ends as it likes."""
        assert host.run(("true",), input=b"x" * 1_000_000).ok
        assert host.run(("head", "-c3"), input=b"x" * 1_000_000).stdout == b"xxx"

    def test_output_beyond_the_limit_is_cut_and_the_command_killed(self, host: Host) -> None:
        """And not before."""
        ended = host.run(sh("echo $$; while :; do echo xxxxxxxxxxxxxxxx; done"), limit_bytes=10_000)
        assert ended.cut
        assert ended.status == -9
        assert len(ended.stdout) == 10_000
        assert gone(int(ended.stdout.split()[0]))
        whole = host.run(("printf", "xxxxxxxxx"), limit_bytes=9)
        assert whole.ok
        assert not whole.cut

    def test_what_takes_too_long_is_killed_with_its_children(self, host: Host) -> None:
        """Not one of them is left."""
        ended = host.run(sh("sleep 600 & echo $! $$; wait"), timeout_s=1)
        assert ended.timed_out
        assert not ended.cut
        assert ended.status == -9
        assert all(gone(int(pid)) for pid in ended.stdout.split())

    def test_a_child_that_holds_the_output_of_a_dead_parent_is_killed(self, host: Host) -> None:
        """The parent's own status is kept."""
        ended = host.run(sh("sleep 600 & echo $!; exit 3"), timeout_s=1)
        assert ended.timed_out
        assert ended.status == 3
        assert gone(int(ended.stdout))

    def test_what_is_left_on_purpose_goes_on(self, host: Host) -> None:
        """A command that ended well is not followed by a kill."""
        ended = host.run(sh("sleep 600 >/dev/null 2>&1 </dev/null & echo $!"))
        assert ended.ok
        pid = int(ended.stdout)
        try:
            time.sleep(0.3)
            os.kill(pid, 0)
        finally:
            os.kill(pid, 9)

    def test_much_stderr_blocks_nothing_and_is_cut(self, host: Host) -> None:
        """Its beginning is kept."""
        ended = host.run(sh("i=0; while [ $i -lt 4000 ]; do printf %0999d $i >&2; i=$((i+1)); done; echo end"))
        assert ended.stdout == b"end\n"
        assert 1 << 15 <= len(ended.stderr) < 1 << 20
        assert ended.stderr.startswith("0" * 999)

    def test_a_stream_is_killed_when_it_is_closed_half_way(self, host: Host) -> None:
        """And is over then."""
        stream = host.stream(sh("echo $$; while :; do echo xxxxxxxxxxxxxxxx; done"))
        first = next(iter(stream))
        ended = stream.close()
        assert ended.cut
        assert gone(int(first.split()[0]))
        assert stream.close() == ended
        assert list(stream) == []

    def test_a_stream_hands_out_more_than_one_would_keep(self, host: Host) -> None:
        """To its last byte."""
        stream = host.stream(("head", "-c", "30000000", "/dev/zero"))
        assert sum(len(chunk) for chunk in stream) == 30_000_000
        assert stream.close().ok

    def test_a_stream_that_is_not_read_does_not_run_ahead(self, host: Host, tmp_path: Path) -> None:
        """A command waits for its reader; so no memory is filled."""
        stream = host.stream(sh(f"head -c 100000000 /dev/zero; echo > {tmp_path}/done"))
        next(iter(stream))
        time.sleep(0.5)
        assert not (tmp_path / "done").exists()
        assert stream.close().cut

    def test_a_stream_has_a_time_limit(self, host: Host) -> None:
        """And says so."""
        stream = host.stream(sh("echo $$; sleep 600"), timeout_s=1)
        said = b"".join(stream)
        assert stream.close().timed_out
        assert gone(int(said))

    def test_a_stream_of_a_missing_program(self, host: Host) -> None:
        """Is empty, and says why."""
        stream = host.stream(("no-such-program-at-all",))
        assert list(stream) == []
        assert stream.close().missing

    def test_files_are_read_up_to_a_limit(self, host: Host, tmp_path: Path) -> None:
        """Any bytes, any name."""
        (tmp_path / "a 'file'\n").write_bytes(b"\0\xff" * 10)
        assert host.read(str(tmp_path / "a 'file'\n"), 3) == b"\0\xff\0"
        assert host.read(str(tmp_path / "a 'file'\n")) == b"\0\xff" * 10
        assert host.read("/proc/self/cgroup")

    def test_what_cannot_be_read_raises_as_open_would(self, host: Host, tmp_path: Path) -> None:
        """At once, pipes and devices included."""
        os.mkfifo(tmp_path / "fifo")
        (tmp_path / "file").touch()
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(FileNotFoundError) as caught:
            host.read(str(tmp_path / "missing"))
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(NotADirectoryError):
            host.read(str(tmp_path / "file" / "x"))
        for path in (tmp_path / "fifo", tmp_path, tmp_path / "loop", Path("/dev/zero")):
            with pytest.raises(OSError, match=r"."):
                host.read(str(path))

    def test_a_port_is_reached(self, host: Host) -> None:
        """At the same place whenever asked; by many at once; each direction ends by itself."""
        with closing(Echo()) as echo:
            where = host.reach("127.0.0.1", echo.port)
            assert host.reach("127.0.0.1", echo.port) == where

            def talk(number: int) -> bytes:
                with socket.create_connection(where, timeout=_PATIENCE_S) as connection:
                    connection.sendall(b"%d" % number * 1000)
                    connection.shutdown(socket.SHUT_WR)
                    return received(connection)

            with ThreadPoolExecutor(50) as pool:
                assert list(pool.map(talk, range(200))) == [b"%d" % number * 1000 + b"end" for number in range(200)]

    def test_a_port_where_nothing_listens_answers_nothing(self, host: Host) -> None:
        """Whoever connects gets an error, not an empty answer."""
        with closing(Echo()) as echo:
            port = echo.port
        where = host.reach("127.0.0.1", port)
        with pytest.raises(OSError, match=r"."):
            _exchange(where)

    def test_fifty_threads_at_once(self, host: Host) -> None:
        """Each gets its own answer."""
        with ThreadPoolExecutor(50) as pool:
            said = pool.map(lambda n: host.run(("sh", "-c", f"cat; echo {n}"), input=b"in "), range(100))
            assert [each.stdout for each in said] == [b"in %d\n" % number for number in range(100)]

    def test_who_and_where_it_is(self, host: Host) -> None:
        """By what its commands say."""
        assert host.name
        assert host.is_root == (host.run(("id", "-u")).stdout == b"0\n")
