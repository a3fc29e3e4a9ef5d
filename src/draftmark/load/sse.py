"""Splits a stream of server-sent events into their data, however the network cut it."""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"


class SseSplitter:
    """Bytes in, the data of each finished event out.

    An event is finished by its blank line, so the read that brings that line is the event's arrival. Lines end
    in LF or CRLF; comments and the fields `event`, `id` and `retry` are passed over, as no LLM API says anything
    in them that its data does not; several `data` lines of one event are joined by LF.
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
            events += self.feed(b"\n")
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
