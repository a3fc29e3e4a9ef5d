"""The least that a client can be: the standard library, one loop, no inter-token latency. A yardstick for cost.

    python bench/load/plain_client.py URL PATH CONCURRENCY REQUESTS

It stamps the first and the last chunk with text of each answer, takes the token count from the final usage, and
prints TTFT, TPOT, E2E and throughput.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

Times = tuple[float, float, float, int]


async def ask(host: str, port: int, path: str) -> Times | None:
    """(sent, first, last, tokens) of one request, on a connection of its own; None when it failed."""
    asked = {"model": "m", "max_tokens": 64, "stream": True, "stream_options": {"include_usage": True}}
    chat = path.endswith("chat/completions")
    asked |= {"messages": [{"role": "user", "content": "go"}]} if chat else {"prompt": "go"}
    body = json.dumps(asked).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    try:
        sent = time.monotonic()
        writer.write(head.encode() + body)
        if b" 200 " not in await reader.readline():
            return None
        first = last = 0.0
        usage = b""
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            if b'"choices":[]' in line:
                usage = line
                continue
            last = time.monotonic()
            first = first or last
        tokens = json.loads(usage[6:])["usage"]["completion_tokens"] if usage else 0
        return sent, first, last, tokens
    finally:
        writer.close()


async def main(url: str, path: str, concurrency: int, requests: int) -> None:
    at = urlsplit(url)
    left = iter(range(requests))
    done: list[Times] = []
    failed = 0

    async def slot() -> None:
        nonlocal failed
        for _ in left:
            times = await ask(at.hostname or "", at.port or 80, path)
            if times is None:
                failed += 1
            else:
                done.append(times)

    begin = time.monotonic()
    await asyncio.gather(*(slot() for _ in range(concurrency)))
    seconds = time.monotonic() - begin
    tokens = sum(n for _, _, _, n in done)
    result = {
        "requests": {"completed": len(done), "failed": failed},
        "duration_s": seconds,
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / seconds,
        "ttft_ms": spread([(first - sent) * 1e3 for sent, first, _, _ in done]),
        "e2e_ms": spread([(last - sent) * 1e3 for sent, _, last, _ in done]),
        "tpot_ms": spread([(last - first) * 1e3 / (n - 1) for _, first, last, n in done if n > 1]),
    }
    print(json.dumps(result))


def spread(values: list[float]) -> dict[str, float]:
    ranked = sorted(values)

    def rank(q: float) -> float:
        at = (len(ranked) - 1) * q / 100
        low = int(at)
        return ranked[low] + (ranked[min(low + 1, len(ranked) - 1)] - ranked[low]) * (at - low)

    return {f"p{q}": rank(q) for q in (50, 90, 99)} if ranked else {}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
