"""The thread that SSH runs in."""

from __future__ import annotations

import asyncio
import logging

import pytest

from draftmark.service.ssh_loop import LoopThread


@pytest.mark.parametrize(
    ("error", "told"), [(BrokenPipeError("Channel not open for sending"), False), (ValueError("a fault"), True)]
)
def test_what_a_lost_link_does_to_those_that_nobody_waits_for_is_not_told(
    error: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = LoopThread("gpu1")

    async def fail() -> None:
        raise error

    async def leave() -> None:
        asyncio.get_running_loop().call_soon(lambda: (_ for _ in ()).throw(error))
        task = asyncio.create_task(fail())
        await asyncio.wait({task})
        del task

    async def nothing() -> None:
        pass

    with caplog.at_level(logging.WARNING):
        loop.call(leave())
        loop.close(nothing())
    assert bool(caplog.records) is told
