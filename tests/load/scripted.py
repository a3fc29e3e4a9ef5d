"""A tiny server for the client's tests: plays scripted streams on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json
    connection: int


class Wire:
    """The server's end of one exchange."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.keep = True

    def head(self, status: str = "200 OK", headers: tuple[str, ...] = (), kind: str = "text/event-stream") -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    def stream(self) -> None:
        self.head(headers=("Transfer-Encoding: chunked",))

    async def chunk(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def event(self, event: Json | str, newline: bytes = b"\n") -> None:
        text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        await self.chunk(b"data: " + text.encode() + newline * 2)

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def whole(
        self, status: str, body: bytes, headers: tuple[str, ...] = (), kind: str = "application/json"
    ) -> None:
        self.head(status, (f"Content-Length: {len(body)}", *headers), kind)
        self.writer.write(body)
        await self.writer.drain()

    def reset(self) -> None:
        """RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
        self.keep = False
        self.writer.transport.abort()

    def close(self) -> None:
        self.keep = False
        self.writer.close()

    async def until_left(self) -> None:
        """Say nothing until the client goes away."""
        while not (self.reader.at_eof() or self.reader.exception() or self.writer.is_closing()):
            await asyncio.sleep(0.005)


Script = Callable[[Wire, Request], Awaitable[None]]


@dataclass
class Scripted:
    """A running server.

    Attributes:
        script: Plays every POST.
        requests: All that came, in order.
        open: Connections open now.
    """

    script: Script
    models: Json | None = field(default_factory=lambda: {"data": [{"id": "scripted"}]})
    requests: list[Request] = field(default_factory=list)
    open: int = 0
    connections: int = 0
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def posts(self) -> list[Request]:
        return [r for r in self.requests if r.method == "POST"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.connections += 1
        number = self.connections
        try:
            keep = True
            while keep:
                request = await self._read(reader, number)
                self.requests.append(request)
                wire = Wire(reader, writer)
                if request.method == "GET":
                    if self.models is None:
                        await wire.whole("404 Not Found", b"{}")
                    else:
                        await wire.whole("200 OK", json.dumps(self.models).encode())
                else:
                    await self.script(wire, request)
                keep = wire.keep
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, number: int) -> Request:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, path, headers, json.loads(raw) if raw else {}, number)


@contextmanager
def serving(script: Script, *, tls: ssl.SSLContext | None = None, models: Json | None = None) -> Iterator[Scripted]:
    """Serve until the block ends. `models` is the /v1/models answer; None is one that names `scripted`."""
    server = Scripted(script, scheme="https" if tls else "http")
    if models is not None:
        server.models = models or None
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)

    def run() -> None:
        loop.set_exception_handler(lambda _loop, _context: None)  # what clients do to it is what is tested
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)


# --- scripts ----------------------------------------------------------------------------------------------


def delta(text: str | None, finish: str | None = None, **more: Any) -> Json:
    """A chat chunk."""
    return {
        "choices": [{"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}],
        **more,
    }


def usage(completion: int, prompt: int = 7) -> Json:
    return {"completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": completion + prompt}


def answer(
    texts: tuple[str, ...] = ("a", "b", "c", "d"),
    *,
    gap_s: float = 0.0,
    tokens: int | None = None,
    finish: str | None = "length",
    done: bool = True,
    newline: bytes = b"\n",
    per_chunk: tuple[int, ...] = (),
    timings: Json | None = None,
) -> Script:
    """A plain answer of these chunks, with the total `tokens` (None: as many as chunks; 0: no usage)."""

    async def script(wire: Wire, request: Request) -> None:
        chat = request.path.endswith("/chat/completions")
        wire.stream()
        if chat:
            await wire.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}, newline)
        for i, text in enumerate(texts):
            if gap_s:
                await asyncio.sleep(gap_s)
            event: Json = delta(text) if chat else {"choices": [{"index": 0, "text": text, "finish_reason": None}]}
            if per_chunk:
                event["usage"] = usage(per_chunk[i])
            await wire.event(event, newline)
        if finish is not None:
            await wire.event(
                delta(None, finish) if chat else {"choices": [{"text": "", "finish_reason": finish}]}, newline
            )
        if tokens != 0:
            last: Json = {"choices": [], "usage": usage(len(texts) if tokens is None else tokens)}
            if timings is not None:
                last["timings"] = timings
            await wire.event(last, newline)
        if done:
            await wire.event("[DONE]", newline)
        await wire.end()

    return script


def failing(status: str, body: bytes, headers: tuple[str, ...] = ()) -> Script:
    async def script(wire: Wire, request: Request) -> None:
        await wire.whole(status, body, headers)

    return script
