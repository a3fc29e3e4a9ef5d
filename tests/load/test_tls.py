"""https: an own certificate made for the test."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from draftmark.load.client import LoadRun, run_closed_loop
from draftmark.model import Message, Prompt, Workload

from .scripted import Request, Wire, answer, delta, serving

WORKLOAD = Workload("w", (Prompt("p", (Message("user", "hello"),), 8),) * 2)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate for 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    both = folder / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def run(url: str, **options: Any) -> LoadRun:
    return run_closed_loop(url, WORKLOAD, concurrency=1, warmup=0, **options)


def test_a_trusted_certificate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(answer(gap_s=0.01), tls=server_side(certificate)) as server:
        got = run(server.url)
    assert server.url.startswith("https://")
    assert [(r.error, r.output_tokens) for r in got.records] == [(None, 4)] * 2
    assert len({r.connection for r in server.posts}) == 1
    assert server.posts[0].body["model"] == "scripted"


def test_an_untrusted_certificate(certificate: Path) -> None:
    with serving(answer(), tls=server_side(certificate)) as server:
        got = run(server.url)
    assert [r.error for r in got.records] == ["tls"] * 2
    assert "CERTIFICATE_VERIFY_FAILED" in (got.records[0].error_detail or "")


def test_https_asked_of_a_plain_server() -> None:
    def refuse(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        got = run(f"https://127.0.0.1:{listener.getsockname()[1]}", model="m")
        thread.join(5)
    assert [r.error for r in got.records] == ["tls"] * 2


def test_a_stream_cut_within_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut(wire: Wire, request: Request) -> None:
        wire.stream()
        await wire.event(delta("a"))
        wire.reset()

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(cut, tls=server_side(certificate)) as server:
        got = run(server.url)
    assert {r.error for r in got.records} <= {"reset", "closed", "tls"}
    assert len(got.records) == 2
