"""Tells a webhook of a post-mortem: plain JSON, Slack's incoming webhooks, or Alertmanager's API (v2).

The URL of a webhook is a secret: it is in no message of this module.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from draftmark.errors import DraftmarkError, FailedError, UsageError

FORMATS = ("json", "slack", "alertmanager")
_TIMEOUT_S = 5.0
_TRIES = 3
_PAUSE_S = 1.0
_ALERTS = "/api/v2/alerts"
_TOO_MANY = 429
_FAULT_OF_SERVER = 500
_SECTION = 2900  # Slack takes 3000 characters a section
_LINES = 3


def check_url(url: str) -> str:
    """The URL as it is kept.

    Raises:
        UsageError: It cannot be one of a webhook. The message does not hold it.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(ord(char) <= 0x20 or ord(char) >= 0x7F for char in url):
        raise UsageError(
            "the webhook is no URL that can be posted to",
            next_step="--webhook https://HOST/PATH, in ASCII; --webhook - reads it from stdin",
        )
    return url


def shown(url: str) -> str:
    """As much of the URL as may be seen: whom it reaches."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}/…"


def body(form: str, document: Mapping[str, Any]) -> bytes:
    """What is posted.

    Args:
        form: One of `FORMATS`.
        document: A `draftmark.why/1` document with `host`, `unit`, `time` and `report` (path or None) beside it.
    """
    made: object = dict(document)
    if form == "slack":
        made = _slack(document)
    elif form == "alertmanager":
        made = _alerts(document)
    return json.dumps(made, ensure_ascii=False).encode("utf-8", "backslashreplace")


def send(
    url: str,
    form: str,
    document: Mapping[str, Any],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Post it, three times if need be.

    Raises:
        FailedError: Nobody took it.
    """
    request = _request(url, form, body(form, document))
    for attempt in range(1, _TRIES + 1):
        because, again = _posted(request)
        if because is None:
            return
        if not again:
            break
        if attempt < _TRIES:
            sleep(_PAUSE_S * attempt)
    raise FailedError(
        f"the webhook at {shown(url)} did not take the post-mortem",
        evidence=(f"{because} ({attempt} of {_TRIES} tries)",),
        next_step="the report is kept; `draftmark watch install` again changes the webhook",
    )


class Courier:
    """Posts one document after the other while the next report is written: a webhook that is slow delays none."""

    def __init__(self) -> None:
        self.failures: list[DraftmarkError] = []
        self._waiting: deque[tuple[str, str, Mapping[str, Any]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def post(self, url: str, form: str, document: Mapping[str, Any]) -> None:
        """Take it; as `send`, but for what goes wrong, which is found in `failures`."""
        with self._changed:
            self._waiting.append((url, form, document))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether all is posted, after that time at the latest."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                url, form, document = self._waiting[0]
            try:
                send(url, form, document)
            except DraftmarkError as error:
                self.failures.append(error)
            except Exception as error:  # a fault of ours must not keep the others from being told
                self.failures.append(FailedError(f"the webhook was not told: {type(error).__name__}"))
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()


def _request(url: str, form: str, data: bytes) -> urllib.request.Request:
    parts = urlsplit(url)
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "draftmark"}
    netloc = parts.netloc
    if "@" in netloc:  # urllib would take the password for a part of the host's name
        who, _, netloc = netloc.rpartition("@")
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(who).encode()).decode()
    path = _ALERTS if form == "alertmanager" and parts.path in ("", "/") else parts.path
    plain = urlunsplit((parts.scheme, netloc, path, parts.query, ""))
    return urllib.request.Request(plain, data, headers, method="POST")  # noqa: S310 - http(s), by `check_url`


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST becomes a GET without its body: it would seem to have arrived."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _posted(request: urllib.request.Request) -> tuple[str | None, bool]:
    """Why it was not taken, None when it was; and whether another try may help."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=_TIMEOUT_S):
            return None, False
    except urllib.error.HTTPError as error:
        with error:
            again = error.code >= _FAULT_OF_SERVER or error.code == _TOO_MANY
            return f"HTTP status {error.code}", again
    except urllib.error.URLError as error:
        return _plain(error.reason), True
    except (OSError, HTTPException, ValueError) as error:
        return _plain(error), True


def _plain(reason: object) -> str:
    """The kind of trouble and the system's word for it; other words may quote the URL."""
    said = getattr(reason, "strerror", None) or ("timed out" if isinstance(reason, TimeoutError) else "")
    return f"{type(reason).__name__}: {said}".removesuffix(": ")


def _title(document: Mapping[str, Any]) -> str:
    return f"{document['unit']} on {document['host']}: {document['cause']}"


def _proof(document: Mapping[str, Any]) -> list[str]:
    return [str(item["text"])[:400] for item in document.get("evidence", ())[:_LINES]]


def _slack(document: Mapping[str, Any]) -> dict[str, Any]:
    title, summary = _title(document), str(document["summary"])
    sections = [f"*{_escaped(title)}*  ({document['confidence']})\n{_escaped(summary)}"]
    if lines := _proof(document):
        sections.append("```\n" + _escaped("\n".join(lines).replace("```", "'''"))[: _SECTION - 8] + "\n```")
    sections += [f"• {_escaped(str(advice))}" for advice in document.get("advice", ())[:_LINES]]
    if document.get("report"):
        sections.append(f"Report: `{_escaped(str(document['report']))}` on {_escaped(str(document['host']))}")
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}} for text in sections]
    return {"text": _escaped(f"{title}. {summary}")[:_SECTION], "blocks": blocks}


def _escaped(text: str) -> str:
    """The three characters that mean something to Slack everywhere."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _alerts(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    labels = {
        "alertname": "DraftmarkPostMortem",
        "severity": "critical",
        "unit": document["unit"],
        "instance": document["host"],
        "cause": document["cause"],
        "confidence": document["confidence"],
    }
    notes = {
        "summary": _title(document),
        "description": document["summary"],
        "evidence": "\n".join(_proof(document)),
        "report": document.get("report"),
    }
    return [
        {
            "labels": {key: str(value) for key, value in labels.items()},
            "annotations": {key: str(value) for key, value in notes.items() if value},
            "startsAt": document["time"],
        }
    ]
