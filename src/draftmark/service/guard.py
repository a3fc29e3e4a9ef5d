"""Stands between Draftmark and an engine, so that the engine never outlives Draftmark, whatever kills Draftmark.

A program of its own, on the standard library alone: `python -I -S guard.py`, spoken to over two pipes.

stdin, from the controller: a line `BYTES ARGUMENTS` and that many bytes of NUL-ended strings (log, directory or
nothing, the arguments, then `NAME=value`s), then commands, one a line: `signal TERM|INT|KILL`, or `main TERM|INT`
for the main process alone.
End of file, or the controller's death seen through a pidfd, kills the whole tree at once.

stdout, to the controller: JSON lines `started` (pid, started_ticks), `exec-failed` (stage, errno, error), `exited`
(code, negative for a signal), and `gone` when not one descendant is left; the guard then ends.

What makes it hold:
- the guard is a child subreaper, so whatever the engine leaves behind, in its own session or not, becomes the
  guard's child and is killed and reaped here; a child not yet reaped keeps its pid, so no kill can hit a stranger;
- the engine has PR_SET_PDEATHSIG, so SIGKILL of the guard is SIGKILL of the engine. The engine's own children are
  then reparented past us: the controller, which sees this pipe close, kills what is left of the session and every
  process whose environment carries the marker `DRAFTMARK_INSTANCE`. If controller and guard are both killed with
  SIGKILL in the same instant, only the engine's main process is sure to die;
- the engine has a process group of its own in the guard's session, which has no terminal: Ctrl-C reaches the
  controller only. The kernel drops PDEATHSIG for set-uid programs: those rely on the pipe alone.

It imports as little as it can (typing, json and contextlib are more than a megabyte and twenty milliseconds), since
one runs for as long as its engine does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_FALLOC_FL_KEEP_SIZE = 1
_LOG_ROOM_BYTES = 64 * 1024
_SIGNALS = {"TERM": signal.SIGTERM, "INT": signal.SIGINT, "KILL": signal.SIGKILL}
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE)
_libc = ctypes.CDLL(None, use_errno=True)


class _Config:
    """What the controller wants started. In bytes, so that no locale can change them."""

    def __init__(self, log: bytes, directory: bytes, argv: list[bytes], env: dict[bytes, bytes]) -> None:
        self.log = log
        self.directory = directory
        self.argv = argv
        self.env = env


def _prctl(option: int, value: int | bytes) -> None:
    argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
    if _libc.prctl(option, argument, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _stat_fields(pid: int | str) -> list[bytes]:
    """Fields of /proc/PID/stat from the third (state) on; the second may hold blanks and brackets."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would cost a megabyte here
        return file.read().rpartition(b")")[2].split()


def _parents() -> dict[int, int]:
    """Every process and its parent."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                found[int(name)] = int(_stat_fields(name)[1])
            except (OSError, IndexError):  # it ended meanwhile
                continue
    return found


def _children(parents: dict[int, int] | None = None) -> list[int]:
    """Own children, zombies too."""
    me = os.getpid()
    if parents is None:
        try:
            with open(f"/proc/self/task/{me}/children", "rb") as file:  # noqa: PTH123
                return [int(word) for word in file.read().split()]
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            parents = _parents()
    return [pid for pid, parent in parents.items() if parent == me]


def _descendants() -> list[int]:
    parents = _parents()
    found = _children(parents)
    for pid in found:  # grows while it is walked
        found.extend(child for child, parent in parents.items() if parent == pid)
    return found


def _quoted(value: int | str) -> str:
    """A value in JSON; the texts are errno messages and words of ours."""
    if isinstance(value, int):
        return str(int(value))
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _open_log(path: bytes) -> int:
    """Open the log for appending, and make sure that the disk has room for a first page of it.

    Raises:
        OSError: With the errno that says why not, ENOSPC included.
    """
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(log, b"")  # a device may refuse even this
    size = os.fstat(log).st_size
    # Reserves blocks without changing the size, so that nothing has to be written to learn that the disk is full.
    if _libc.fallocate(log, _FALLOC_FL_KEEP_SIZE, ctypes.c_long(size), ctypes.c_long(_LOG_ROOM_BYTES)):
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise OSError(number, os.strerror(number))
    return log


def _become_engine(config: _Config, guard: int, status: int) -> None:
    """In the forked child: shed everything that is the guard's, then become the engine."""
    stage = "prepare"
    try:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before the line above could say what to do then
            os._exit(127)
        for each in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(each, signal.SIG_DFL)
            except (OSError, ValueError):  # one that the C library keeps for itself
                continue
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)  # 2 is the log
        if config.directory:
            stage = "chdir"
            os.chdir(config.directory)
        stage = "exec"
        os.execvpe(config.argv[0], config.argv, config.env)  # noqa: S606 - the user's own command
    except (OSError, ValueError) as error:
        number = (error.errno if isinstance(error, OSError) else None) or errno.EINVAL
        os.write(status, f"{stage} {number}".encode())
    finally:
        os._exit(127)


class _Guard:
    """The loop: reap, report, obey, until no descendant is left."""

    def __init__(self, controller: int) -> None:
        self.main = 0
        self.main_alive = False
        self.killing = False
        self._pending = b""
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the byte below is written
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._controller = -1
        # A process forked off the controller could keep the pipe open: its death is watched directly as well.
        try:
            self._controller = os.pidfd_open(controller)
            self._poll.register(self._controller, select.POLLIN)
        except OSError:  # before Linux 5.3: the pipe alone
            pass
        if os.getppid() != controller:
            self.killing = True

    def emit(self, event: str, **fields: int | str) -> None:
        """One line to the controller; nobody there means that it is dead."""
        text = "".join(f', "{key}": {_quoted(value)}' for key, value in fields.items())
        try:
            os.write(1, f'{{"event": "{event}"{text}}}\n'.encode())
        except OSError:
            self.killing = True

    def read_config(self) -> _Config | None:
        """What to start; None when the controller went away before it had said it all."""
        while b"\n" not in self._pending:
            if not self._read():
                return None
        line, _, self._pending = self._pending.partition(b"\n")
        size, arguments = (int(word) for word in line.split())
        while len(self._pending) < size:
            if not self._read():
                return None
        payload, self._pending = self._pending[:size], self._pending[size:]
        log, directory, *words = payload.split(b"\0")[:-1]
        pairs = [word.partition(b"=") for word in words[arguments:]]
        return _Config(log, directory, words[:arguments], {name: value for name, _, value in pairs})

    def _read(self) -> bool:
        data = os.read(0, 65536)
        self._pending += data
        return bool(data)

    def start(self, config: _Config) -> bool:
        """Open the log, start the engine, report. False when there is nothing to guard."""
        try:
            log = _open_log(config.log)
            os.dup2(log, 2)  # a traceback of the guard's own ends there too
            os.close(log)
        except OSError as error:
            self._failed("log", error.errno or errno.EIO)
            return False
        status, child_status = os.pipe()
        guard = os.getpid()
        try:
            self.main = os.fork()
        except OSError as error:
            self._failed("fork", error.errno or errno.EAGAIN)
            return False
        if self.main == 0:
            _become_engine(config, guard, child_status)
        os.close(child_status)
        report = os.read(status, 64)  # end of file: exec closed it
        os.close(status)
        if report:
            os.waitpid(self.main, 0)
            stage, _, number = report.decode().partition(" ")
            self._failed(stage, int(number))
            return False
        self.main_alive = True
        self.emit("started", pid=self.main, started_ticks=int(_stat_fields(self.main)[19]))
        return True

    def _failed(self, stage: str, number: int) -> None:
        self.emit("exec-failed", stage=stage, errno=number, error=os.strerror(number))

    def reap(self) -> bool:
        """Collect what has ended. True when no descendant is left: each is, or hangs below, a child of ours."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main:
                self.main_alive = False
                self.emit("exited", code=os.waitstatus_to_exitcode(status))

    def signal(self, number: int) -> None:
        """To the engine's process group; once its leader is reaped, to each descendant instead."""
        if not self.main_alive:
            for pid in _descendants():
                _kill(pid, number)
            return
        for each in (number, signal.SIGCONT):  # a stopped process would keep the first one pending
            try:
                os.killpg(self.main, each)
            except ProcessLookupError:  # it moved itself to another group
                _kill(self.main, each)
            except PermissionError:
                pass

    def signal_main(self, number: int) -> None:
        """To the engine's main process alone, which ends its children itself; once it is reaped, to all."""
        if not self.main_alive:
            self.signal(number)
            return
        for each in (number, signal.SIGCONT):
            _kill(self.main, each)

    def kill_children(self) -> None:
        """SIGKILL what is a child of ours now. Its own children become ours, and are met on the next round."""
        if self.main_alive:
            self.signal(signal.SIGKILL)
        for pid in _children():
            _kill(pid, signal.SIGKILL)

    def obey(self) -> None:
        """Read the commands that have come."""
        if not self._read():
            self._poll.unregister(0)
            self.killing = True
        self._obey_lines()

    def _obey_lines(self) -> None:
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            verb, _, name = line.decode("latin-1").partition(" ")
            if name not in _SIGNALS:
                continue
            if name == "KILL":
                self.killing = True
            elif verb == "main":
                self.signal_main(_SIGNALS[name])
            elif verb == "signal":
                self.signal(_SIGNALS[name])

    def watch(self) -> None:
        """Until every descendant is gone."""
        self._obey_lines()  # what came right behind the configuration
        rounds = 0
        while not self.reap():
            timeout_ms: int | None = None
            if self.killing:
                self.kill_children()
                rounds += 1
                timeout_ms = 5 if rounds < 100 else 200
            for fd, _ in self._poll.poll(timeout_ms):
                if fd == self._wake:
                    os.read(self._wake, 4096)
                elif fd == self._controller:
                    self._poll.unregister(fd)
                    self.killing = True
                else:
                    self.obey()
        self.emit("gone")


def main() -> int:
    """Guard one engine from its start until nothing of it is left."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the controller had them blocked until here
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # the listing's own
                continue
    if os.getsid(0) != os.getpid():
        os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_NAME, b"draftmark-guard")
    guard = _Guard(int(sys.argv[1]))
    config = guard.read_config()
    if config is not None and guard.start(config):
        guard.watch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
