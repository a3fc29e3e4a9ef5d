"""Records that are JSON or logfmt: journald, docker's json-file, JSON loggers, Go's slog."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from draftmark.postmortem.intake.carriers import name_unit
from draftmark.postmortem.intake.clock import epoch, fraction, zone_offset
from draftmark.postmortem.intake.head import LEVELS, Head

# What of a journal entry means something to a post-mortem; the rest would only cost memory.
JOURNAL_FIELDS = frozenset(
    [
        "MESSAGE_ID",
        "EXIT_CODE",
        "EXIT_STATUS",
        "UNIT_RESULT",
        "INVOCATION_ID",
        "USER_INVOCATION_ID",
        "N_RESTARTS",
        "UNIT",
        "USER_UNIT",
        "_SYSTEMD_UNIT",
        "_SYSTEMD_USER_UNIT",
        "_SYSTEMD_INVOCATION_ID",
        "_SYSTEMD_CGROUP",
        "_TRANSPORT",
        "_COMM",
        "_EXE",
        "_UID",
        "_BOOT_ID",
        "PRIORITY",
        "JOB_TYPE",
        "JOB_RESULT",
        "COMMAND",
        "ERRNO",
        "EXECUTABLE",
        "SYSLOG_IDENTIFIER",
        "MEMORY_PEAK",
        "MEMORY_SWAP_PEAK",
        "CPU_USAGE_NSEC",
        "COREDUMP_PID",
        "COREDUMP_COMM",
        "COREDUMP_SIGNAL",
        "COREDUMP_SIGNAL_NAME",
        "COREDUMP_UNIT",
        "COREDUMP_EXE",
        "OBJECT_PID",
        "__MONOTONIC_TIMESTAMP",
        "_SOURCE_MONOTONIC_TIMESTAMP",
    ]
)
_ISO = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)([.,]\d{1,9})? ?(Z|UTC|[+-]\d\d:?\d\d)?")
_LOGFMT = re.compile(r"(?:time|ts|level)=\S")
_PAIR = re.compile(r'([\w.@/-]{1,80})=("(?:[^"\\]|\\.)*+"|[^\s"]*+) ?')
_DIGITS = re.compile(r"-?\d{1,17}(?:\.\d{1,9})?\Z")
_MAX_TEXTS = 2000

Texts = list[str]


def decode(text: str | bytes) -> Any:
    """Parsed JSON, or None for anything that is none (or is nested too deep to be a record)."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def record(text: str, head: Head) -> Texts | None:
    """The texts of one JSON object, with what it says of itself noted; None when it is no log record."""
    entry = decode(text)
    return None if not isinstance(entry, dict) else entry_texts(entry, head)


def entry_texts(entry: Mapping[str, Any], head: Head) -> Texts | None:
    """As `record`, of an object that is parsed already."""
    for key, reader in _READERS:
        if key in entry:
            return reader(entry, head)
    return None


def _string(value: object) -> str:
    """Journald writes a field with bytes outside UTF-8 as a list of byte values."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _lines(text: str) -> Texts:
    return text.rstrip("\r\n").split("\n", _MAX_TEXTS)[:_MAX_TEXTS]


def _micros(value: object) -> float | None:
    text = _string(value)
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) < 17 else None


def _journal(entry: Mapping[str, Any], head: Head) -> Texts:
    for key in ("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP"):
        if (moment := _micros(entry.get(key))) is not None:
            head.wall(moment, datetime.fromtimestamp(moment, UTC).isoformat())
            break
    ident = _string(entry.get("SYSLOG_IDENTIFIER")) or _string(entry.get("_COMM"))
    if not ident and entry.get("_TRANSPORT") == "kernel":
        ident = "kernel"
    pid = _string(entry.get("_PID")) or _string(entry.get("SYSLOG_PID"))
    head.writer(
        ident, pid if pid.isascii() and pid.isdigit() and len(pid) < 11 else None, _string(entry.get("_HOSTNAME"))
    )
    head.fields = {
        key: sys.intern(_string(value)[:512]) for key, value in entry.items() if key in JOURNAL_FIELDS and value
    }
    unit = next((found for key in ("UNIT", "USER_UNIT", "COREDUMP_UNIT") if (found := head.fields.get(key))), "")
    if not unit:
        unit = head.fields.get("_SYSTEMD_USER_UNIT") or head.fields.get("_SYSTEMD_UNIT", "")
        unit = "" if unit == "init.scope" else unit
    head.unit = head.unit or unit
    texts = _lines(_string(entry.get("MESSAGE")))
    name_unit(texts[0], head)
    return texts


def _docker(entry: Mapping[str, Any], head: Head) -> Texts:
    _note_time(entry.get("time"), head)
    text = _string(entry["log"])
    head.stream, head.partial = _string(entry.get("stream")) or "stdout", not text.endswith("\n")
    return _lines(text)


def _note_time(value: object, head: Head) -> None:
    """A time as loggers write it: ISO text, or a number of seconds, milli- or microseconds."""
    text = _string(value)
    if match := _ISO.match(text):
        seconds = epoch(match[1])
        if seconds is not None:
            head.wall(seconds + fraction(match[2]) - zone_offset(match[3]), text[:64])
    elif _DIGITS.match(text):
        number = float(text)
        while number > 1e11:
            number /= 1e3
        if number > 1e8:
            head.wall(number, text)
        else:
            head.relative(number, text)


def _note_level(value: object, head: Head) -> None:
    word = _string(value).upper()
    head.level = LEVELS.get(word, LEVELS.get(word[:4], head.level))


_TIME_KEYS = ("asctime", "timestamp", "time", "ts", "@timestamp", "t", "datetime")
_LEVEL_KEYS = ("levelname", "level", "severity", "lvl")
_EXTRA_KEYS = ("error", "err", "exc_info", "exception", "stack_info", "stack", "traceback", "exc_text")


def _logger(entry: Mapping[str, Any], head: Head) -> Texts | None:
    """VLLM's JSON formatter, tracing's JSON, zap, pino, `llama-server --log-jsonl`."""
    inner = entry.get("fields")
    extra = inner if isinstance(inner, dict) else {}
    message = next(
        (entry[key] for key in ("message", "msg", "MESSAGE", "event", "textPayload") if key in entry),
        extra.get("message"),
    )
    time_key = next((key for key in _TIME_KEYS if key in entry), None)
    level_key = next((key for key in _LEVEL_KEYS if key in entry), None)
    if message is None or (time_key is None and level_key is None):
        return None
    if time_key:
        _note_time(entry[time_key], head)
    if level_key:
        _note_level(entry[level_key], head)
    name, pid, rank = _string(entry.get("processName")), _string(entry.get("process")), _string(entry.get("rank"))
    if name not in ("", "MainProcess"):
        head.act(f"{name} pid={pid}" if pid else name)
    if pid.isascii() and pid.isdigit() and len(pid) < 11:
        head.writer("", pid)
    if rank:
        head.act(f"rank{rank[:8]}")
    texts = _lines(_string(message))
    for key in _EXTRA_KEYS:
        value = _string(entry.get(key, extra.get(key)))
        if value and value not in texts:
            texts.extend(_lines(value))
    return texts[:_MAX_TEXTS]


_READERS: tuple[tuple[str, Callable[[Mapping[str, Any], Head], Texts | None]], ...] = (
    (
        "MESSAGE",
        lambda entry, head: (
            _journal(entry, head) if "__REALTIME_TIMESTAMP" in entry or "_PID" in entry else _logger(entry, head)
        ),
    ),
    ("__REALTIME_TIMESTAMP", _journal),
    ("log", lambda entry, head: _docker(entry, head) if isinstance(entry["log"], str) else None),
    ("message", _logger),
    ("msg", _logger),
    ("fields", _logger),
    ("event", _logger),
    ("textPayload", _logger),
)


def is_logfmt(text: str) -> bool:
    """Whether a line starts as Go's slog and logrus write them."""
    return _LOGFMT.match(text) is not None


def logfmt(text: str, head: Head) -> str | None:
    """The message first, then every other field as it was written; None when it is no logfmt after all."""
    at, message, others = 0, "", []
    while match := _PAIR.match(text, at):
        key, value = match[1], match[2]
        at = match.end()
        bare = value[1:-1].replace('\\"', '"') if value[:1] == '"' and len(value) > 1 else value
        if key in ("time", "ts", "t"):
            _note_time(bare, head)
        elif key in ("level", "lvl", "severity"):
            _note_level(bare, head)
        elif key in ("msg", "message") and not message:
            message = bare.replace("\\n", "\n") if value[:1] == '"' else bare
        else:
            others.append(match[0].rstrip(" "))
    if not at:
        return None
    rest = text[at:].strip()
    return " ".join(part for part in (message, *others, rest) if part)
