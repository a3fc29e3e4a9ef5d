"""A controller to be killed: `python controller.py JSON` tunes a unit with two arms, as `draftmark tune` does.

What it is about to do goes into `log`, a line a step, before it does it.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from draftmark.service.local import LocalHost
from draftmark.service.systemd.lease import Lease


class Controller:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._port = int(options["port"])
        self._log = Path(options["log"])
        self._unit = options["unit"]
        self._user_scope = bool(options.get("user_scope"))

    def tune(self) -> None:
        self._step(f"pid {os.getpid()}")
        self._step("open")
        lease = Lease.open(LocalHost(), self._unit, user_scope=self._user_scope, lease_s=self._options["lease_s"])
        for depth in (3, 5):
            self._step("edit")
            lease.edit(self._drop_in(depth))
            self._stop(lease)
            self._step("start")
            lease.start()
            self._ready()
            self._step("measure")
            with lease.measuring():
                time.sleep(self._options["measure_s"])
        if self._options.get("keep"):
            self._step("keep")
            lease.keep(self._drop_in(5))
        else:
            self._step("restore")
            lease.restore()
        self._step("end")

    def _drop_in(self, depth: int) -> str:
        command = self._options["command"].replace("--depth 0", f"--depth {depth}")
        return f"# Draftmark\n[Service]\nExecStart=\nExecStart={command}\n"

    def _stop(self, lease: Lease) -> None:
        while True:
            self._step("look")
            lease.look(self._port)
            self._running()
            self._step("stop")
            stopped = lease.stop(self._port, timeout_s=20)
            if stopped.busy is None:
                return

    def _running(self) -> int | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/", timeout=5) as answer:
                return int(answer.read())
        except (urllib.error.URLError, ConnectionError):
            return None

    def _ready(self) -> None:
        while self._running() is None:
            time.sleep(0.02)

    def _step(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{text}\n")


if __name__ == "__main__":
    try:
        Controller(json.loads(sys.argv[1])).tune()
    except Exception as error:
        with Path(json.loads(sys.argv[1])["log"]).open("a") as log:
            log.write(f"error {type(error).__name__}: {' '.join(str(error).split())}\n")
        raise
