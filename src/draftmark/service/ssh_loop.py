"""An event loop in a thread of its own, called from ordinary code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from draftmark.errors import HostError

_T = TypeVar("_T")
_JOIN_S = 10.0


def _unwaited(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waits for. A lost link fails all that used it at once: whoever waits is told, once, in words."""
    error = context.get("exception")
    if not isinstance(error, OSError) and not type(error).__module__.startswith("asyncssh"):
        loop.default_exception_handler(context)


class LoopThread:
    """Runs coroutines for callers in any thread; a daemon, so that it keeps no interpreter from ending.

    Args:
        name: Of the thread, and in the error for a call after `close`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_unwaited)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._lock = threading.Lock()
        self._open = True
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run it to its end. Whatever interrupts the wait, such as Ctrl-C, cancels it; its clean-up goes on.

        Raises:
            HostError: The loop is closed, or closes meanwhile.
        """
        with self._lock:
            if not self._open:
                work.close()
                raise self._gone()
            future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise self._gone() from None
        except BaseException:
            future.cancel()
            raise

    def _gone(self) -> HostError:
        return HostError(f"the connection of {self._name} is closed", next_step="connect again")

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, then run this to its end, and end the thread. Idempotent."""
        with self._lock:
            if not self._open:
                last.close()
                return
            self._open = False
        asyncio.run_coroutine_threadsafe(self._wind_up(last), self._loop)
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _wind_up(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await self._cancel_others()
            await last
            await self._cancel_others()
            await self._loop.shutdown_asyncgens()
        finally:
            self._loop.stop()

    async def _cancel_others(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
