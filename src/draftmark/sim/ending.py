"""How a simulated server ends: asked to, by a child's death, or in a way that was ordered (`--die`)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, NoReturn

from draftmark.sim import failures
from draftmark.sim.children import Child, Children

if TYPE_CHECKING:
    from draftmark.sim.service import Service

_POLL_S = 5.0  # of the drain, before its first look and between two
_SHUTDOWN_S = 3.0  # schedulers end after ShutdownReq
_NOTICE_S = 1.0  # a child's death is looked for so often
_SETTLE_S = 5.0  # before crash diagnostics
_WATCHDOG_SHARE = 1.25  # it looks every half of its time
_LOOK_S = 0.05
_KILLED = 128 + signal.SIGKILL


class Ending:
    """Looks after everything that can end the server."""

    def __init__(self, service: Service, children: Children) -> None:
        self._service = service
        self._children = children
        self._log = service.log
        self._minor = service.setup.rules.minor
        self._words = service.setup.words
        self._asked = asyncio.Event()
        self._over = asyncio.Event()
        self._falling = False
        self._serving_since: float | None = None

    # --- what is watched ------------------------------------------------------------------------------------------

    def watch_start(self) -> None:
        """While it loads: SIGTERM kills as it kills any program; a scheduler's death ends the start."""
        self._children.watch(self._child_died)

    def watch(self) -> None:
        """HTTP is up: SIGTERM begins a drain from here on."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._sigterm)

    def arm(self) -> None:
        """It serves: the death that was ordered comes when its time has come."""
        self._serving_since = self._service.clock.seconds()
        if self._words.die not in (None, "kv-start"):
            self._keep(self._ordered())

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        kept = asyncio.get_running_loop().create_task(work)
        self._service._tasks.add(kept)
        kept.add_done_callback(self._service._tasks.discard)

    async def wait(self) -> None:
        """Until the server has ended in order. Polls as SGLang does: it may see the signal five seconds late."""
        while self._service.clock.real and not self._asked.is_set():
            await self._sleep(_POLL_S)
        await self._asked.wait()
        if self._service.unhealthy or os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in ("1", "true"):
            why = "health check failed" if self._service.unhealthy else "force shutdown flag set"
            self._log.say(f"Signal SIGTERM received while {why}. Force exiting.")
        else:
            await self._drained()
        await self._sleep(_SHUTDOWN_S)
        self._falling = True
        if self._minor <= 17:
            self.kill()
        self._log.say("INFO:     Shutting down")
        self._log.say(failures.kill_tree(self._service.pid, itself=False))
        self._children.kill()

    async def _drained(self) -> None:
        """New requests are taken meanwhile, and there is no limit."""
        while True:
            rids = [each.rid for each in self._service.scheduler.remaining()]
            self._log.say(failures.draining(rids))
            if not rids:
                return
            await self._sleep(_POLL_S)

    def _sigterm(self) -> None:
        if not self._asked.is_set():
            self._log.say(failures.SIGTERM)
            self._service.status = "Draining"
            self._asked.set()

    async def _sleep(self, seconds: float) -> None:
        """Waits of the server's own go faster with `--speed`."""
        await self._service.clock.pause(seconds, self._words.speed, lambda: self._service.busy)

    # --- what goes wrong ------------------------------------------------------------------------------------------

    def _child_died(self, child: Child, code: int) -> None:
        if self._falling:
            return
        self._falling = True
        self._keep(self._after_child(child, code))

    async def _after_child(self, child: Child, code: int) -> None:
        await self._sleep(_NOTICE_S * 0.5)
        pid = child.pid if self._service.clock.real else self._service.pid + 1
        if self._serving_since is None:
            self._log.say(
                f"Rank 0 scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), a "
                "common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
            )
            self._log.say(failures.SIGQUIT_AT_START)
            self.kill()
        self._log.say(failures.child_died(child.name, pid, code))
        self._log.say(failures.sigquit("None"))
        if self._minor >= 17 and code == -signal.SIGKILL:
            self._log.say(f"Sleeping {_SETTLE_S:.0f} seconds before crash diagnostics to let GPU activity settle.")
            await self._sleep(_SETTLE_S)
            self._log.say("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.kill()

    async def _ordered(self) -> None:
        await self._until_due()
        {
            "runtime-oom": self._out_of_memory,
            "killed-child": self._kill_child,
            "hang": self._hang,
            "self-kill": self._sigterm,
            "watchdog": self._hang,
        }[str(self._words.die)]()
        if self._words.die == "watchdog":
            await self._watchdog()

    async def _until_due(self) -> None:
        if self._service.clock.real:
            await asyncio.sleep(self._words.after_s)
            return
        since = self._serving_since or 0.0
        while self._service.clock.seconds() - since < self._words.after_s:
            await asyncio.sleep(_LOOK_S)

    def _hang(self) -> None:
        self._service.hung = True

    async def _watchdog(self) -> None:
        told = self._service.setup.args.get("watchdog_timeout")
        limit = float(told) if isinstance(told, int | float) else 300.0
        await self._sleep(limit * _WATCHDOG_SHARE)
        rank = self._service._ranks[0]
        for line in failures.watchdog(limit):
            self._log.say(line, rank)
        await self._sleep(_SETTLE_S)
        self._log.say(failures.sigquit())
        self.kill()

    def _out_of_memory(self) -> None:
        self._service.hung = True
        self._log.say(failures.out_of_memory(self._service.setup.memory), self._service._ranks[0])
        self._log.say(failures.sigquit())
        self.kill()

    def _kill_child(self) -> None:
        os.kill(self._children.all[0].pid, signal.SIGKILL)

    def kill(self) -> NoReturn:
        """SGLang's own teardown: its whole tree, itself last. Nothing is left to say afterwards."""
        self._falling = True
        if self._minor >= 14:
            self._log.say(failures.kill_tree(self._service.pid, itself=True))
        self._children.kill()
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(_KILLED)
