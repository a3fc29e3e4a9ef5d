"""Splits a stream of server-sent events into their data, however the network cut it."""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_FIELD = b"data: "
_BETWEEN = re.compile(b"\n\n" + _FIELD)  # splits by a literal in half of the time that bytes.split takes


class SseSplitter:
    """Bytes in, the data of each finished event out.

    An event is finished by its blank line, so the read that brings that line is the event's arrival. Lines end
    in LF or CRLF; comments and the fields `event`, `id` and `retry` are passed over, as no LLM API says anything
    in them that its data does not; several `data` lines of one event are joined by LF.

    Nearly every stream is nothing but `data: …` and a blank line, over and over. So much of a stream as has this
    form is split in one step, in C, which is several times faster than line by line and comes to the same.
    """

    __slots__ = ("_data", "_pieces", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # an unfinished line; pieces, so that a long one is joined only once
        self._data: list[bytes] = []
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; give the data of the events that they finish."""
        if b"\n" not in chunk:
            self._pieces.append(chunk)
            return []
        if self._pieces:
            self._pieces.append(chunk)
            chunk = b"".join(self._pieces)
        return self._lines(chunk)

    def feed_plain(self, chunk: bytes) -> list[bytes] | None:
        """As `feed`, of events in their plainest form.

        None, and nothing is taken, where a byte of it, or the end of what came before, has any other form.
        """
        if self._data:
            return None
        if self._pieces:
            chunk = b"".join([*self._pieces, chunk])
        end = chunk.rfind(b"\n\n")
        if end < 0 or not chunk.startswith(_FIELD) or b"\r" in chunk:
            return None
        plain, rest = chunk[len(_FIELD) : end], chunk[end + 2 :]
        events = _BETWEEN.split(plain)
        if b"\n" in rest or plain.count(b"\n") != 2 * (len(events) - 1):
            return None
        self._started = True
        self._pieces = [rest] if rest else []
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        lines = chunk.split(b"\n")
        self._pieces = [lines.pop()]
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        for line in lines:
            self._line(line.removesuffix(b"\r"), events)
        return events

    def flush(self) -> list[bytes]:
        """At a clean end of the body: the event that lacks only its blank line, as some servers leave `[DONE]`."""
        events: list[bytes] = []
        if any(self._pieces):
            events += self._lines(b"".join([*self._pieces, b"\n"]))
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            self._data.append(b"")
