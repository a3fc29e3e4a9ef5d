"""What this computer lets a client have, and which way to the server it takes."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import UsageError
from draftmark.load.client import LoadPlan, run_load
from draftmark.load.endpoint import ConnectError, Endpoint
from draftmark.load.limits import make_room
from draftmark.load.proxies import proxy_passed_by
from draftmark.model import Message, Prompt, Workload

from .scripted import answer, serving

SCRIPT = """
import resource, sys
from draftmark.errors import UsageError
from draftmark.load.limits import make_room
soft, hard, connections, processes = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    make_room(connections, processes)
except UsageError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def room(*figures: int) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, figures)], capture_output=True, check=True, text=True
    )
    return ran.stdout.splitlines()


def test_the_limit_of_files_is_raised_as_far_as_it_goes() -> None:
    assert room(100, 1000, 900, 1) == ["1000"]


def test_too_few_files_are_told_with_the_command_that_gives_more() -> None:
    words = room(100, 500, 900, 1)
    assert words[0] == "900 requests at once need 964 open files a process, and it may have 500 here"
    assert "ulimit -n 964" in words[2]
    assert room(100, 500, 800, 2) == ["500"]


def test_too_few_ports_are_told(tmp_path: Path) -> None:
    ports = tmp_path / "range"
    ports.write_text("60000\t60099\n")
    make_room(100, ports=ports)
    with pytest.raises(UsageError) as caught:
        make_room(101, ports=ports)
    assert "gives 100" in caught.value.what
    assert "sysctl" in caught.value.next_step
    make_room(None, ports=ports)
    make_room(101, ports=tmp_path / "none")


def test_it_is_looked_at_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (80, 80))
    plan = LoadPlan(workload=Workload("w", (Prompt("p", (Message("user", "x"),), 8),)), concurrency=17, repeat=99)
    with serving(answer()) as server:
        with pytest.raises(UsageError):
            run_load(server.url, plan)
        assert server.requests == []


# --- the client's own limits are not the server's faults --------------------------------------------------


def connect_failing(monkeypatch: pytest.MonkeyPatch, number: int, *, after: int) -> str:
    """The kind of failure when, after so many connections, the system refuses with this errno."""
    made = 0

    async def main(url: str) -> str:
        nonlocal made
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def refusing(*args: Any) -> None:
            nonlocal made
            made += 1
            if made > after:
                raise OSError(number, "no")
            await connect(*args)

        monkeypatch.setattr(loop, "sock_connect", refusing)
        endpoint = Endpoint(url)
        kept = []
        try:
            while True:
                kept.append(await endpoint.connect())
        except ConnectError as error:
            return error.failure.kind
        finally:
            await asyncio.sleep(0.05)  # so that the server has taken them all before they go
            for connection in kept:
                connection.abort()

    with serving(answer()) as server:
        return asyncio.run(main(server.url))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_files_and_memory(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    assert connect_failing(monkeypatch, number, after=0) == "client-limit"


def test_an_address_that_cannot_be_had_is_for_want_of_ports_only_where_it_was_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert connect_failing(monkeypatch, errno.EADDRNOTAVAIL, after=0) == "connect-failed"
    assert connect_failing(monkeypatch, errno.EADDRNOTAVAIL, after=1) == "client-limit"


def test_a_server_that_refuses_is_no_limit_of_ours() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConnectError) as caught:
            asyncio.run(Endpoint(url).connect())
    assert caught.value.failure.kind == "connect-refused"


# --- proxies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "environment", "name"),
    [
        ("http://gpu1:80", {"http_proxy": "http://p:3128"}, "http_proxy"),
        ("http://gpu1:80", {"HTTP_PROXY": "http://p:3128"}, "HTTP_PROXY"),
        ("https://gpu1", {"http_proxy": "http://p:3128"}, None),
        ("https://gpu1", {"ALL_PROXY": "socks5://p"}, "ALL_PROXY"),
        ("http://gpu1", {"http_proxy": ""}, None),
        ("http://gpu1", {}, None),
        ("http://localhost:8000", {"http_proxy": "http://p"}, None),
        ("http://127.0.0.2:8000", {"http_proxy": "http://p"}, None),
        ("http://[::1]:8000", {"http_proxy": "http://p"}, None),
        ("http://gpu1.lab", {"http_proxy": "http://p", "no_proxy": "a, .lab"}, None),
        ("http://gpu1.lab", {"http_proxy": "http://p", "NO_PROXY": "gpu1.lab:80"}, None),
        ("http://gpu1.lab", {"http_proxy": "http://p", "no_proxy": "ab"}, "http_proxy"),
        ("http://gpu1.lab", {"http_proxy": "http://p", "no_proxy": "*"}, None),
        ("http://10.1.2.3", {"http_proxy": "http://p", "no_proxy": "10.0.0.0/8"}, None),
        ("http://10.1.2.3", {"http_proxy": "http://p", "no_proxy": "10.0.0.0/zz, 11.0.0.0/8"}, "http_proxy"),
    ],
)
def test_a_proxy_that_others_would_use_is_named(url: str, environment: dict[str, str], name: str | None) -> None:
    told = proxy_passed_by(url, environment)
    assert told is None if name is None else told is not None and told.startswith(f"{name} is set")


def test_a_run_goes_direct_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr("draftmark.load.proxies._excepted", lambda host, no_proxy: False)
    plan = LoadPlan(workload=Workload("w", (Prompt("p", (Message("user", "x"),), 8),)), concurrency=1, warmup=0)
    with serving(answer()) as server:
        run = run_load(server.url, plan)
    assert [record.error for record in run.records] == [None]
    assert run.assumptions[-1].startswith("http_proxy is set and was not used")
