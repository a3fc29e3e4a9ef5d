"""Runs inside a lab with a kernel of its own: takes commands from a serial line, gives back what they said.

A request is a line `{"id", "argv", "input", "timeout"}`, an answer a line `{"id", "status", "out", "err"}`; what
programs read and write is in base64. Several commands may run at a time.
Standard library only: it is started with `-S`.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import tty
from typing import Any

TIMED_OUT = 124
NOT_STARTED = 127


def execute(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        ended = subprocess.run(
            request["argv"],
            input=base64.b64decode(request["input"]),
            capture_output=True,
            timeout=request["timeout"],
            check=False,
        )
        status, out, err = ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as late:
        status, out, err = TIMED_OUT, late.stdout or b"", late.stderr or b""
    except OSError as error:
        status, out, err = NOT_STARTED, b"", str(error).encode()
    answer["status"] = status
    answer["out"], answer["err"] = base64.b64encode(out).decode(), base64.b64encode(err).decode()
    return answer


def main(line: str) -> None:
    """Serve for ever."""
    descriptor = os.open(line, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(descriptor)
    writing = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with writing:
            while data:
                data = data[os.write(descriptor, data) :]

    say({"id": 0})
    with os.fdopen(os.dup(descriptor), "rb") as requests:
        for text in requests:
            request = json.loads(text)
            threading.Thread(target=lambda request=request: say(execute(request)), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
