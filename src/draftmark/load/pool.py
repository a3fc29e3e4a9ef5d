"""Connections to one server: kept ones first, new ones where there is none."""

from __future__ import annotations

import asyncio

from draftmark.load.connection import Connection
from draftmark.load.endpoint import Endpoint


class Pool:
    """The connections of one run.

    The last one that was given back is the first to be taken, so that as few as are needed stay in use, and those
    that are left idle are the server's to close.

    Args:
        endpoint: The server.
        most_opening: So many are opened at once; None for no limit. A server accepts only so many in a moment, and
            those beyond are tried again by the kernel after a second: a fault of the start, not of the server.
    """

    def __init__(self, endpoint: Endpoint, most_opening: int | None = None) -> None:
        self._endpoint = endpoint
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = None if most_opening is None else asyncio.Semaphore(most_opening)

    def take(self) -> Connection | None:
        """A connection that has served before and is free; None where there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def open(self) -> Connection:
        """A new one.

        Raises:
            ConnectError: With the kind of failure.
        """
        if self._opening is None:
            return await self._open()
        async with self._opening:
            return await self._open()

    async def _open(self) -> Connection:
        connection = await self._endpoint.connect()
        self._all.add(connection)
        connection.on_closed = self._all.discard
        return connection

    def give(self, connection: Connection) -> None:
        """Back, for the next request."""
        if connection.usable:
            self._idle.append(connection)

    def close(self) -> None:
        """Drop them all."""
        for connection in list(self._all):
            connection.abort()
