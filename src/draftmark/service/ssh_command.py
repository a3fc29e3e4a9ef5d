"""What runs on the other side for one command: a line for the login shell, and a script for `sh`. Pure.

The login shell may be any: it is given one constant line of plain words and one quoted word without a quote, a
backslash, a `!` or a line end, so that sh, bash, zsh, fish and csh all read it alike. The command itself comes over
stdin, as one line of script for `sh`; then its input, then nothing until it has ended. That gives

- a lifeline: stdin ends when the connection does, and a watcher beside the command then kills its process group,
  as it does when told to, and when the time is up while the connection is stuck;
- input that is whole or not used at all: it is received before the command starts, which has it as a file that
  has no name any more (in memory where there is /dev/shm);
- certainty about the start: nothing has started before the script was sent.

The script's process becomes the command by `exec`, so that its exit status or signal is the session's own. Before,
it says so on stdout and stderr: what the login shell's start-up files printed stands before that, and is dropped.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from os import fsencode

KILL = b"k"
"""What stdin is sent, before its end, to have the command killed."""

_SPARE_S = 5  # the other side's own limit comes after ours
_NO_INPUT = 125
_FOLDERS = '"${XDG_RUNTIME_DIR:-/dev/shm}" /dev/shm "${TMPDIR:-/tmp}" /tmp /var/tmp'


def login_line(token: str, environment: Mapping[str, str]) -> str:
    """The constant line that the login shell is given.

    Args:
        token: Name of the script's process until it is the command, in letters, digits and `-`.
        environment: Variables to set; plain words.
    """
    settings = " ".join(f"{name}={value}" for name, value in environment.items())
    return f"exec env {settings} sh -c 'IFS= read -r x && eval \"$x\"' {token}"


def script(argv: Sequence[str], input_bytes: int, seconds: float) -> bytes:
    """The line of script that starts the command.

    Args:
        argv: Program and arguments, without NUL bytes.
        input_bytes: How much input follows the line.
        seconds: When the other side may kill it, should nobody be there to do it.
    """
    steps = [
        *(('n=$(printf "\\nx"); n=${n%x}',) if any("\n" in word for word in argv) else ()),
        # systemd's and the network's tools, which an ordinary user's path may lack
        "PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin; export PATH; exec 3<&0",
        *(_receive(input_bytes) if input_bytes else ()),
        _watcher(math.ceil(seconds) + _SPARE_S),
        'echo "$0 $$"; echo "$0" >&2',
        f"exec {_words(argv)} 3<&- {'<&5 5<&-' if input_bytes else '</dev/null'}",
    ]
    return fsencode("; ".join(steps)) + b"\n"


def _words(argv: Sequence[str]) -> str:
    """The words quoted for sh, on one line: `$n` is a line end, set only where one is needed."""
    return shlex.join(argv).replace("\n", "'\"$n\"'")


def _receive(size: int) -> Sequence[str]:
    fail = f"exit {_NO_INPUT}"
    return (
        f'f=; for d in {_FOLDERS}; do f=$(mktemp "$d/draftmark-XXXXXXXX" 2>/dev/null) && break; done',
        f'[ "$f" ] || {{ echo "no folder for the input can be written: $d" >&2; {fail}; }}',
        'exec 4>"$f" 5<"$f" 6<"$f"; rm -f "$f"',
        f"head -c {size} <&3 >&4; exec 4>&-",
        f'[ "$(wc -c <&6)" -eq {size} ] || {{ echo "the input did not arrive whole" >&2; {fail}; }}',
        "exec 6<&-",
    )


def _watcher(seconds: int) -> str:
    """Beside the command, child of nobody: kills the group when told to, and when stdin ends before the command.

    `$$` is the command's process in every part of the script.
    """
    wait = f"if command -v timeout; then x=$(timeout {seconds} cat <&3); else x=$(cat <&3); fi"
    return (
        f'( ( {wait}; [ "$x" = {KILL.decode()} ] && kill -9 0; kill -0 $$ && kill -9 0 ) >/dev/null 2>&1 5<&- & )'
    )
