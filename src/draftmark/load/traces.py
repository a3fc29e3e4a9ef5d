"""Traces: when requests came to a service somewhere, and how long they were. They hold no text.

Mooncake   JSON Lines `{"timestamp": ms, "input_length", "output_length", "hash_ids"}`; an id is of a block of 512
           tokens together with all before it, so that requests whose ids begin alike begin alike
Bailian    the same with `chat_id`, `parent_chat_id`, `turn` and `type`; its times are seconds and its blocks have
           16 tokens
BurstGPT   CSV with the columns Timestamp (seconds), Request tokens, Response tokens; 0 in the last is a failure
Azure      CSV with the columns TIMESTAMP (a date with a time), ContextTokens, GeneratedTokens
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from draftmark.errors import BadInputError
from draftmark.load import files

MAX_TOKENS = 9_999_999  # longer than any context
MAX_REQUESTS = 100_000
"""More than these are read only when asked for by number."""

_FORMS = (
    "Mooncake's JSON Lines, or CSV with BurstGPT's header (Timestamp,Model,Request tokens,Response tokens,…) "
    "or Azure's (TIMESTAMP,ContextTokens,GeneratedTokens)"
)
_PURPOSE = files.Purpose(
    option="--trace",
    kind="trace file",
    forms=_FORMS,
    save="save it as UTF-8 text",
    take="take a part of it: --requests N takes the first N requests",
)
_NEXT = f"a trace is {_FORMS}"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        at_s: Seconds on the trace's own clock.
        prompt_tokens: As counted there.
        output_tokens: Of its answer.
        blocks: Ids of its blocks of tokens, in order; the last may be partly filled. Empty where that is not told.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Requests in the order of their times.

    Attributes:
        form: `Mooncake`, `Bailian`, `BurstGPT` or `Azure`.
        requests: At least one.
        block_tokens: Tokens in a block; 0 where there are none.
        source: The file's name.
        left_out: Requests without a prompt or an answer, which failed there.
        moved: Requests that stood before one of an earlier time.
    """

    form: str
    requests: tuple[TraceRequest, ...]
    block_tokens: int
    source: str
    left_out: int = 0
    moved: int = 0

    @property
    def times(self) -> tuple[float, ...]:
        """Of the requests."""
        return tuple(request.at_s for request in self.requests)

    @property
    def about(self) -> str:
        """What it is, and what was done to it."""
        told = [f"times and lengths of a {self.form} trace"]
        if self.left_out:
            told.append(f"{self.left_out} without a prompt or an answer left out")
        if self.moved:
            told.append(f"{self.moved} out of order put in order")
        return ", ".join(told)


class _UnusableError(Exception):
    """Why a line is no request, in words."""


_Read = Callable[[str], TraceRequest]


@dataclass(frozen=True, slots=True)
class _Form:
    name: str
    block_tokens: int
    read: _Read


def read_trace(path: Path, *, take: int | None = None) -> RequestTrace:
    """A trace from a file.

    Args:
        path: JSON Lines or CSV, told apart by what is in it.
        take: The first so many requests of the file; the rest is not read. None for all, if they are not too many.

    Raises:
        BadInputError: It is none, a line of it cannot be used, or it has more than MAX_REQUESTS and `take` is None.
    """
    numbered = files.lines(path, files.chunks(path, _PURPOSE))
    number, first = next(numbered)
    form = _csv_form(path, number, first)
    rows = numbered
    if form is None:
        form = _json_form(first)
        rows = _again((number, first), numbered)
    requests: list[TraceRequest] = []
    left_out = 0
    for number, line in rows:
        try:
            request = form.read(line)
        except _UnusableError as error:
            raise files.bad_line(path, number, str(error), line, _NEXT) from None
        if request.prompt_tokens == 0 or request.output_tokens == 0:
            left_out += 1
            continue
        if take is None and len(requests) == MAX_REQUESTS:
            raise BadInputError(f"{path} has more than {MAX_REQUESTS} requests", next_step=_PURPOSE.take)
        requests.append(request)
        if len(requests) == take:
            break
    if not requests:
        raise BadInputError(
            f"{path} has no requests",
            evidence=(f"{left_out} lines without a prompt or an answer",) if left_out else (),
            next_step=_NEXT,
        )
    return RequestTrace(
        form=form.name,
        requests=tuple(sorted(requests, key=lambda request: request.at_s)),
        block_tokens=form.block_tokens,
        source=files.name_of(path),
        left_out=left_out,
        moved=sum(b.at_s < a.at_s for a, b in pairwise(requests)),
    )


def _again(first: tuple[int, str], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from rest


# --- JSON Lines ---------------------------------------------------------------------------------------------


_NO_CHAT = msgspec.Raw(b"")


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] | None = None
    chat_id: msgspec.Raw = _NO_CHAT


_decode_line = msgspec.json.Decoder(_Line).decode


def _json_form(first: str) -> _Form:
    """Mooncake or Bailian, by the first line; that it is neither comes out when it is read."""
    try:
        bailian = bytes(_decode_line(first).chat_id) != b""
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        bailian = False
    if bailian:
        return _Form("Bailian", 16, lambda line: _json_request(line, unit_s=1.0, block_tokens=16))
    return _Form("Mooncake", 512, lambda line: _json_request(line, unit_s=0.001, block_tokens=512))


def _json_request(line: str, *, unit_s: float, block_tokens: int) -> TraceRequest:
    try:
        found = _decode_line(line)
    except msgspec.ValidationError as error:
        raise _UnusableError(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _UnusableError(f"not JSON: {error}") from None
    blocks = tuple(found.hash_ids or ())
    most = math.ceil(found.input_length / block_tokens)
    if len(blocks) > most:
        raise _UnusableError(
            f"{len(blocks)} hash_ids for {found.input_length} tokens, but blocks of {block_tokens} make {most}"
        )
    return TraceRequest(
        at_s=_time(found.timestamp) * unit_s,
        prompt_tokens=_tokens(found.input_length, "input_length"),
        output_tokens=_tokens(found.output_length, "output_length"),
        blocks=blocks,
    )


# --- CSV ----------------------------------------------------------------------------------------------------


def _csv_form(path: Path, number: int, header: str) -> _Form | None:
    """By the header; None for what is no CSV.

    Raises:
        BadInputError: A header of neither form.
    """
    if header.lstrip()[:1] in ("{", "["):
        return None
    try:
        names = [name.strip().lower() for name in _cells(header)]
    except _UnusableError as error:
        raise files.bad_line(path, number, str(error), header, _NEXT) from None
    for form, columns, time in (
        ("BurstGPT", ("timestamp", "request tokens", "response tokens"), _seconds),
        ("Azure", ("timestamp", "contexttokens", "generatedtokens"), _date),
    ):
        if all(column in names for column in columns):
            places = [names.index(column) for column in columns]
            return _Form(form, 0, _row_reader(places, columns, time))
    raise files.bad_line(path, number, "neither a line of JSON nor a header that is known", header, _NEXT)


def _row_reader(places: Sequence[int], columns: Sequence[str], time: Callable[[str], float]) -> _Read:
    def read(line: str) -> TraceRequest:
        cells = _cells(line)
        if len(cells) <= max(places):
            raise _UnusableError(f"{len(cells)} columns, but {columns[places.index(max(places))]!r} is missing")
        at, asked, answered = (cells[place].strip() for place in places)
        return TraceRequest(time(at), _count(asked, columns[1]), _count(answered, columns[2]))

    return read


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader((line.rstrip("\r"),), strict=True), [])
    except csv.Error as error:
        raise _UnusableError(f"not CSV: {error}") from None


def _seconds(text: str) -> float:
    return _time(_decimal(text, "the time"))


def _date(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise _UnusableError(f"{text[:40]!r} is no date with a time") from None
    # only differences count, and those of times without a zone are right among themselves
    return (at.replace(tzinfo=at.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def _count(text: str, column: str) -> int:
    value = _decimal(text, column)
    if not value.is_integer():
        raise _UnusableError(f"{column} is {text[:40]!r}, not a whole number")
    return _tokens(int(value), column)


def _decimal(text: str, what: str) -> float:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _UnusableError(f"{what} is {text[:40]!r}, not a number")
    return value


def _time(value: float) -> float:
    if not 0 <= value < math.inf:
        raise _UnusableError(f"the time is {value:g}; it must be 0 or later")
    return value


def _tokens(value: int, what: str) -> int:
    if not 0 <= value <= MAX_TOKENS:
        raise _UnusableError(f"{what} is {value}; it must be from 0 to {MAX_TOKENS}")
    return value
