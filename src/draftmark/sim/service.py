"""A simulated server as it runs: from its start to its end, in one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from time import monotonic
from typing import NoReturn

from draftmark.sim import failures
from draftmark.sim.answers import Health
from draftmark.sim.boot import READY, WARM_UP_S, http_up, starting
from draftmark.sim.children import Children
from draftmark.sim.clock import Clock
from draftmark.sim.ending import Ending
from draftmark.sim.http import Call, Connection, reason
from draftmark.sim.loading import StartFailedError
from draftmark.sim.log import Log, ranks_of
from draftmark.sim.requests import Request
from draftmark.sim.routes import Routes
from draftmark.sim.scheduler import Scheduler
from draftmark.sim.setup import Setup
from draftmark.sim.statistics import Lines
from draftmark.sim.step import Step
from draftmark.sim.turns import Decode, Prefill, Retraction, Turn

_HEALTH_LEAST_S = 1.0  # between two looks of its health check
_HEALTH_MOST_S = 20.0  # SGLANG_HEALTH_CHECK_TIMEOUT
_SETTLE_S = 0.004  # simulated clock: what comes within it came together
_FOLLOWED_S = 0.25  # and for so long the next requests of a closed loop are waited for
_FIXED_PID = 4100  # with the simulated clock, whose log is the same each time
_WARM_UP_TOKENS = 6


class Service:
    """One server.

    Attributes:
        status: `Starting`, `Up`, `Draining`.
        hung: No forward pass goes on.
        entered: Requests that came, in all.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = Clock(real=setup.words.clock == "wall")
        self.log = Log(self.clock.now)
        self.scheduler = Scheduler(
            setup.limits,
            setup.cost,
            seed=setup.words.seed,
            noise=setup.words.noise,
            interval=_interval(setup),
        )
        self.status = "Starting"
        self.unhealthy = False
        self.hung = False
        self.entered = 0
        self._new: list[Request] = []
        self._woken = asyncio.Event()
        self._lines = Lines(setup.memory, setup.rules.minor)
        self._ranks = ranks_of(setup.memory.settings.tp)
        self._routes = Routes(self)
        self._ending: Ending | None = None
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """As the log tells it."""
        return os.getpid() if self.clock.real else _FIXED_PID

    # --- its life -------------------------------------------------------------------------------------------------

    async def run(self, children: Children) -> int:
        """Start, serve, end; the exit status, where it does not end by a signal."""
        speed = self.setup.words.speed
        ending = self._ending = Ending(self, children)
        ending.watch_start()
        try:
            for step in starting(self.setup.start):
                await self._say(step)
        except StartFailedError:
            self.log.say(failures.SIGQUIT_AT_START)
            ending.kill()
        server = await self._listen()
        if server is None:
            children.kill()
            return 1
        for step in http_up(self.pid, self.setup.host, self.setup.port):
            await self._say(step)
        ending.watch()
        ended = asyncio.create_task(ending.wait())
        serving = asyncio.create_task(self._serve())
        await self.clock.wait(WARM_UP_S, speed)
        await self._warm_up()
        ending.arm()
        done, _ = await asyncio.wait({ended, serving}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        for each in done:
            each.result()
        server.close()
        return 0

    async def _say(self, step: Step) -> None:
        await self.clock.wait(step.after_s, self.setup.words.speed)
        if step.plain:
            self.log.plain(step.text)
        elif step.ranks:
            self.log.on_ranks(step.text, self._ranks)
        else:
            self.log.say(step.text, self._ranks[0] if step.first else "")

    async def _listen(self) -> asyncio.Server | None:
        host, port = self.setup.host, self.setup.port
        try:
            return await asyncio.get_running_loop().create_server(
                lambda: Connection(self._routes.handle, self._access), host, port, reuse_address=True
            )
        except OSError as error:
            self.log.say(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): "
                "address already in use"
            )
            return None

    def _access(self, connection: Connection, call: Call, status: int) -> None:
        host, port = connection.peer
        if not self.clock.real:
            port = 0  # the system's choice, and no part of the simulation
        self.log.say(f'INFO:     {host}:{port} - "{call.method} {call.target} HTTP/1.1" {status} {reason(status)}')

    async def _warm_up(self) -> None:
        """One short generation of its own; then it is ready."""
        warm = asyncio.Event()
        self.enter(self._own("warm-up", _WARM_UP_TOKENS, Health(warm.set)))
        await warm.wait()
        self.status = "Up"
        self.log.say(READY)

    def _own(self, rid: str, prompt: int, sink: Health) -> Request:
        """A request of the server's own, for one token."""
        return Request(rid=rid, prompt=prompt, most=1, sink=sink, draws=None)

    @property
    def busy(self) -> bool:
        """Whether simulated time moves by itself."""
        return not self.hung and (bool(self._new) or not self.scheduler.idle)

    # --- requests -------------------------------------------------------------------------------------------------

    def enter(self, request: Request) -> None:
        """A request comes in."""
        self.entered += 1
        request.entered_s = self.clock.seconds()
        if self.clock.real:
            self.scheduler.add(request)
        else:
            self._new.append(request)
        self._woken.set()

    def give_up(self, request: Request, message: str) -> None:
        """End a request with an error."""
        self.scheduler.abort(request)
        request.sink.failed(request, message)

    def check_health(self, answer: Callable[[int], None]) -> None:
        """Generate one token; 200 if that comes, 503 if it does not, or while it starts or drains."""
        if self.status != "Up":
            answer(503)
            return
        task = asyncio.get_running_loop().create_task(self._checked(answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _checked(self, answer: Callable[[int], None]) -> None:
        came = asyncio.Event()
        request = self._own(f"HEALTH_CHECK_{self.entered}", 1, Health(came.set))
        self.enter(request)
        speed = self.setup.words.speed
        try:
            await asyncio.wait_for(came.wait(), _HEALTH_MOST_S / (speed if self.clock.real else 1.0))
        except TimeoutError:
            self.scheduler.abort(request)
            self.unhealthy = True
            self.log.say(
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
                "tic start time: 00:00:00. last_heartbeat time: 00:00:00"
            )
            answer(503)
            return
        if self.clock.real:
            await asyncio.sleep(_HEALTH_LEAST_S / speed)
        self.unhealthy = False
        answer(200)

    # --- rounds ---------------------------------------------------------------------------------------------------

    async def _serve(self) -> NoReturn:
        speed = self.setup.words.serve_speed
        while True:
            if not self.clock.real:
                await self._settle()
            turn = self.scheduler.turn() if not self.hung else None
            if turn is None:
                self.clock.idle()
                self._woken.clear()
                await self._woken.wait()
                continue
            await self.clock.serve(turn.seconds, speed)
            if not self.hung:
                self._deliver(turn)

    async def _settle(self) -> None:
        """Simulated clock: what came while the last round's answers went out is put in an order of its own.

        A closed loop sends a request for each that has ended. On a busy computer that takes it a while, which must
        not be seen in the log: it is waited for, as long as they do come.
        """
        if self.scheduler.idle and not self._new:
            return
        if self._new or self._ended:
            latest = monotonic() + (_FOLLOWED_S if self._followed else 0.0)
            came = -1
            while came < len(self._new) or (came < self._ended and monotonic() < latest):
                came = len(self._new)
                await asyncio.sleep(_SETTLE_S)
            if self._ended:
                self._followed = len(self._new) >= self._ended
        self._ended = 0
        for request in sorted(self._new, key=lambda each: (each.digest, each.rid)):
            self.scheduler.add(request)
        self._new.clear()

    _ended = 0  # in the last rounds
    _followed = True  # as many came as had ended, the last time

    def _deliver(self, turn: Turn) -> None:
        for request, count in turn.gained:
            if request.finished != "abort":
                request.sink.tokens(request, count)
                self._ended += request.finished is not None
        for request in turn.failed:
            self.log.say(f"retract_decode: aborted last request {request.rid} due to OOM", self._ranks[0])
            request.sink.failed(request, failures.OUT_OF_MEMORY_REQUEST)
        for event in turn.events:
            self._tell(event)

    def _tell(self, event: Prefill | Decode | Retraction) -> None:
        first = self._ranks[0]
        if isinstance(event, Prefill):
            self.log.say(self._lines.prefill(event), first)
        elif isinstance(event, Decode):
            self.log.say(self._lines.decode(event), first)
        elif event.requests:
            slots = event.requests * self.setup.limits.per_request if self.setup.limits.slots is not None else None
            told = failures.retracted(event.requests, event.gained, event.ratio_before, event.ratio, slots)
            self.log.say(told, first)


def _interval(setup: Setup) -> int:
    found = setup.args.get("decode_log_interval")
    return found if isinstance(found, int) and found > 0 else 40


def serve(setup: Setup) -> int:
    """Run a simulated server until it ends; its exit status, where it does not end by a signal."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    children = Children(setup.memory.settings.tp)
    return asyncio.run(Service(setup).run(children))
