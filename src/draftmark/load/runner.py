"""Which event loop the load runs on: uvloop's where it is installed, which spends less on each arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """For `asyncio.Runner`; None is asyncio's own."""
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return made
