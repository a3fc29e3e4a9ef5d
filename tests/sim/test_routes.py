"""Whatever a client sends, it gets an answer, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.sim.http import Call, Connection
from draftmark.sim.requests import Request
from draftmark.sim.routes import Routes
from draftmark.sim.service import Service
from draftmark.sim.setup import setup
from draftmark.sim.words import Words

from .conftest import drafting


class _Wire:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.said: list[int] = []
        self.data = b""
        self.connection = Connection(lambda *_: None, lambda _c, _call, status: self.said.append(status))
        self.connection._call = Call(method="POST", path="/", query="", headers={}, body=b"")
        self.connection._transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """As a transport's."""


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(
        setup(Words(model="qwen35-35b", gpus="h200", clock="simulated", flags=("--enable-metrics", *drafting(3))))
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30)
NAMES = st.sampled_from(
    [
        *("text", "input_ids", "sampling_params", "max_new_tokens", "temperature", "stream", "rid", "messages"),
        *("prompt", "role", "content", "max_tokens", "stream_options", "include_usage", "seed", "server_args"),
    ]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)
PATHS = st.sampled_from(
    [
        "/generate",
        "/v1/chat/completions",
        "/v1/completions",
        "/tokenize",
        "/flush_cache",
        "/abort_request",
        "/set_internal_state",
    ]
)


@given(PATHS, st.dictionaries(NAMES, VALUES, max_size=6) | VALUES)
def test_any_json_is_answered(service: Service, path: str, body: Any) -> None:
    wire = _Wire()
    call = Call(method="POST", path=path, query="", headers={}, body=json.dumps(body).encode())
    Routes(service).handle(call, wire.connection)
    entered = list(service._new)
    service._new.clear()
    if entered:
        (request,) = entered
        request.finished, request.output = "length", 2
        request.sink.tokens(request, 2)
    assert wire.said
    assert wire.said[0] in (200, 400)


@given(st.text(min_size=1, max_size=60))
def test_any_request_id_leaves_valid_json(service: Service, rid: str) -> None:
    wire = _Wire()
    body = {"text": "x", "stream": True, "rid": rid, "sampling_params": {"max_new_tokens": 4}}
    call = Call(method="POST", path="/generate", query="", headers={}, body=json.dumps(body).encode())
    Routes(service).handle(call, wire.connection)
    (request,) = service._new
    service._new.clear()
    assert isinstance(request, Request)
    assert request.rid.isprintable()
    request.output = 1
    request.sink.tokens(request, 1)
    _, _, chunks = wire.data.partition(b"\r\n\r\n")
    chunk = json.loads(chunks.split(b"data: ")[1].split(b"\n\n")[0])
    assert chunk["meta_info"]["id"] == request.rid


@given(st.binary(max_size=200))
def test_any_bytes_at_the_socket(data: bytes) -> None:
    wire = _Wire()
    wire.connection.data_received(data)
    wire.connection.data_received(b"\r\n\r\n")
