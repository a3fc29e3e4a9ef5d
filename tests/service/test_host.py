"""Clock, facts and ports of this computer."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from draftmark.service import host
from draftmark.service.host import SystemClock, free_port, local_facts, port_listener


def listening(family: socket.AddressFamily, address: str) -> socket.socket:
    server = socket.socket(family)
    server.bind((address, 0))
    server.listen(1)
    return server


def test_clock() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.02)
    assert clock.monotonic() - before >= 0.02
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", clock.now_iso())


def test_facts_agree_with_the_kernel() -> None:
    facts = local_facts()
    assert facts["cpus"] == len(os.sched_getaffinity(0))
    pages_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    assert facts["memory_gib"] == pytest.approx(pages_gib, rel=0.01)
    assert facts["kernel"] == os.uname().release
    assert facts["python"] == sys.version.split()[0]
    assert facts["cpu_model"]
    assert isinstance(facts["loadavg"], list)
    assert len(facts["loadavg"]) == 3


def test_facts_that_cannot_be_told_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    facts = local_facts()
    assert facts["memory_gib"] is None
    assert facts["cpu_model"] == os.uname().machine


def test_free_port_has_no_listener() -> None:
    port = free_port()
    assert port_listener("127.0.0.1", port) is None
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


@pytest.mark.parametrize("asked", ["127.0.0.1", "localhost", "0.0.0.0", ""])
def test_own_listener_is_named(asked: str) -> None:
    with listening(socket.AF_INET, "127.0.0.1") as server:
        port = server.getsockname()[1]
        assert (port_listener(asked, port) or "").startswith(f"pid {os.getpid()} (")
    assert port_listener(asked, port) is None


def test_wildcard_listener_stands_in_the_way() -> None:
    with listening(socket.AF_INET, "0.0.0.0") as server:
        assert port_listener("127.0.0.1", server.getsockname()[1]) is not None


def test_another_loopback_address_does_not() -> None:
    with listening(socket.AF_INET, "127.0.0.2") as server:
        assert port_listener("127.0.0.1", server.getsockname()[1]) is None


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_dual_stack_listener_stands_in_the_way() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        assert (port_listener("127.0.0.1", port) or "").startswith(f"pid {os.getpid()} (")
        assert port_listener("::1", port) is not None


def test_another_process_is_named() -> None:
    script = (
        "import socket,sys; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen();"
        "print(s.getsockname()[1],flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-I", "-S", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        assert port_listener("127.0.0.1", port) == f"pid {child.pid} ({Path(sys.executable).name})"
        child.communicate()


def test_listener_without_a_readable_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROC", tmp_path)
    with listening(socket.AF_INET, "127.0.0.1") as server:
        assert port_listener("127.0.0.1", server.getsockname()[1]) == "a process that this user may not see"


def test_owner_is_named_by_uid_when_its_files_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_holds", lambda *_: False)
    with listening(socket.AF_INET, "127.0.0.1") as server:
        assert port_listener("127.0.0.1", server.getsockname()[1]) == f"a process of uid {os.getuid()}"


def test_addresses_that_cannot_be_bound() -> None:
    assert port_listener("192.0.2.1", 80) is None
    assert port_listener("no-such-host.invalid", 80) is None


@pytest.mark.parametrize(
    "name", ["a..b", "a" * 64, "a\0b", "\udcff", "[::1", "::1]", "%", ".", " ", "a b", "1.2.3.4.5", "x" * 5000]
)
def test_hosts_that_are_none_have_no_listener(name: str) -> None:
    assert port_listener(name, 80) is None


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999, 10**30])
def test_ports_that_are_none_have_no_listener(port: int) -> None:
    assert port_listener("127.0.0.1", port) is None
