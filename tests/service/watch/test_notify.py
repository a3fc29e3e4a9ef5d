"""Webhooks: what is posted, how often, and that the URL stays secret."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from draftmark.errors import FailedError, UsageError
from draftmark.service.watch import notify

DOCUMENT: dict[str, Any] = {
    "schema": "draftmark.why/1",
    "cause": "cgroup-oom",
    "confidence": "certain",
    "summary": "The limit of 32 GiB was hit & <python3> was killed.",
    "evidence": [
        {"file": "kernel log", "line": 7, "time": None, "text": f"oom-kill: ``` {number}"} for number in range(5)
    ],
    "advice": ["Raise MemoryMax=."],
    "host": "gpu1",
    "unit": "llm.service",
    "time": "2026-11-29T17:50:27.123Z",
    "report": "/var/lib/draftmark/watch/llm.service/x.md",
}


class Hook(HTTPServer):
    """Answers with the next of its statuses, the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def url(self, path: str = "/hook/s3cr3t", who: str = "") -> str:
        return f"http://{who}127.0.0.1:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.hold.wait(30)
        length = int(self.headers["Content-Length"])
        self.server.got.append((self.path, dict(self.headers), self.rfile.read(length)))
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append((self.path, {}, b"GET"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook(200)
    yield server
    server.shutdown()
    server.server_close()
    server.thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_plain_json_is_the_document(hook: Hook) -> None:
    notify.send(hook.url(), "json", DOCUMENT)
    [(path, headers, data)] = hook.got
    assert path == "/hook/s3cr3t"
    assert headers["Content-Type"].startswith("application/json")
    assert json.loads(data) == DOCUMENT


def test_slack_gets_text_and_blocks() -> None:
    message = json.loads(notify.body("slack", DOCUMENT))
    assert message["text"].startswith("llm.service on gpu1: cgroup-oom. ")
    assert "&amp; &lt;python3&gt;" in message["text"]
    assert all(block["type"] == "section" and block["text"]["type"] == "mrkdwn" for block in message["blocks"])
    assert all(len(block["text"]["text"]) <= 3000 for block in message["blocks"])
    code = message["blocks"][1]["text"]["text"]
    assert code.startswith("```\n")
    assert code.count("```") == 2, "a log line must not end the block"


def test_slack_takes_the_longest_document() -> None:
    long = DOCUMENT | {"summary": "<" * 9000, "evidence": [{"text": "&" * 9000}] * 3, "advice": ["x" * 9000] * 9}
    message = json.loads(notify.body("slack", long))
    assert all(len(block["text"]["text"]) <= 3000 for block in message["blocks"])
    assert len(message["blocks"]) <= 50


def test_alertmanager_gets_a_list_of_alerts(hook: Hook) -> None:
    notify.send(hook.url("/"), "alertmanager", DOCUMENT)
    [(path, _, data)] = hook.got
    assert path == "/api/v2/alerts"
    [alert] = json.loads(data)
    assert alert["labels"]["cause"] == "cgroup-oom"
    assert alert["labels"]["instance"] == "gpu1"
    assert alert["startsAt"] == DOCUMENT["time"]
    assert all(isinstance(value, str) for part in ("labels", "annotations") for value in alert[part].values())


def test_a_path_of_ones_own_is_kept_for_alertmanager(hook: Hook) -> None:
    notify.send(hook.url("/am/api/v2/alerts?x=1"), "alertmanager", DOCUMENT | {"report": None})
    assert hook.got[0][0] == "/am/api/v2/alerts?x=1"


def test_a_password_in_the_url_becomes_a_header(hook: Hook) -> None:
    notify.send(hook.url(who="me:p%40ss@"), "json", DOCUMENT)
    assert hook.got[0][1]["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


@pytest.mark.parametrize(
    ("statuses", "posts", "taken"),
    [
        ([204], 1, True),
        ([500, 503, 200], 3, True),
        ([429, 200], 2, True),
        ([500], 3, False),
        ([404], 1, False),
        ([302], 1, False),
    ],
)
def test_it_is_tried_again_where_that_may_help(hook: Hook, statuses: list[int], posts: int, taken: bool) -> None:
    hook.statuses = statuses
    waits: list[float] = []
    if taken:
        notify.send(hook.url(), "json", DOCUMENT, sleep=waits.append)
    else:
        with pytest.raises(FailedError) as caught:
            notify.send(hook.url(), "json", DOCUMENT, sleep=waits.append)
        assert "s3cr3t" not in str(caught.value)
        assert f"HTTP status {(statuses * 3)[posts - 1]}" in str(caught.value)
    assert len(hook.got) == posts
    assert len(waits) == posts - 1


def test_a_courier_is_not_waited_for(hook: Hook) -> None:
    courier = notify.Courier()
    assert courier.wait(0)
    hook.hold.clear()
    for _ in range(2):
        courier.post(hook.url(), "json", DOCUMENT)
    assert not courier.wait(0.1)
    hook.hold.set()
    assert courier.wait(30)
    assert len(hook.got) == 2
    hook.statuses = [404]
    courier.post(hook.url(), "json", DOCUMENT)
    assert courier.wait(30)
    assert "HTTP status 404" in str(courier.failures[0])
    courier.post(hook.url(), "json", DOCUMENT | {"unit": object()})
    assert courier.wait(30)
    assert "TypeError" in str(courier.failures[1])


def test_nobody_there(hook: Hook) -> None:
    url = hook.url()
    hook.shutdown()
    hook.server_close()
    with pytest.raises(FailedError) as caught:
        notify.send(url, "json", DOCUMENT, sleep=lambda _: None)
    assert "Connection refused (3 of 3 tries)" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.slack.com/x",
        "ftp://x/s3cr3t",
        "http://",
        "http://x:99999/s3cr3t",
        "http://x/s3cr3t\nHost: y",
        "http://[x",
        "http://ü/s3cr3t",
    ],
)
def test_no_url(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        notify.check_url(url)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.slack.com/services/T0/B0/s3cr3t", "https://hooks.slack.com/…"),
        ("http://me:s3cr3t@am:9093/?token=s3cr3t", "http://am:9093/…"),
        ("http://[::1]:9093/s3cr3t", "http://[::1]:9093/…"),
    ],
)
def test_what_is_shown_is_no_secret(url: str, shown: str) -> None:
    assert notify.shown(notify.check_url(url)) == shown
