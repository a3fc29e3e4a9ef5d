"""The requests' file alone gives every figure again, whatever became of it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import BadInputError, DraftmarkError, StorageError, UsageError
from draftmark.load.journal import BROKEN_OFF, Ending, Head, JournalWriter, Measured, read_journal
from draftmark.load.result import derive, disturbed
from draftmark.model import ClientHealth, Counters, RequestRecord

from .records import record, stalled_open_loop, stream

HEAD = Head(
    draftmark="1", service="url:http://x", engine="vllm", api="openai", started_at="2026-11-30T03:40:00Z",
    limits_ms={"ttft": 150.0}, settings={"requests": 30},
)  # fmt: skip


def closed(count: int = 30, **fields: Any) -> tuple[RequestRecord, ...]:
    return tuple(
        record(float(i), stream(20, ttft=0.1 + i / 1000, interval=0.02, per_chunk=3), tag=f"bench-{i}", **fields)
        for i in range(count)
    )


def ended(records: tuple[RequestRecord, ...], **fields: Any) -> Measured:
    return Measured(
        records=records,
        ending=Ending(
            workload=records[0].workload,
            concurrency=records[0].concurrency,
            counters=Counters(drafts=3, drafted_tokens=9, accepted_tokens=6, output_tokens=20),
            client=ClientHealth(loop_lag_ms_p99=1.5, cpu_s=0.25),
            **fields,
        ),
    )


MEASURED = (
    ended(closed(category="code"), assumptions=("one",), prompts_sha256="f00"),
    ended(
        tuple(stalled_open_loop(60, rate=20.0, slots=4, stall=(1, 2), answer_s=0.1)), arrival={"kind": "constant"}
    ),
    ended(closed(concurrency=2), disturbed=("busy",), unsent={"stopped": 2}, stopped_because="stopped by SIGINT"),
)


def write(path: Path, measured: tuple[Measured, ...] = MEASURED, head: Head = HEAD) -> JournalWriter:
    writer = JournalWriter(path)
    writer.begin(head)
    for one in measured:
        for made in one.records:
            writer.request(made)
        writer.ending(one.ending)
    writer.close()
    return writer


def test_the_file_alone_gives_the_same_document(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    assert write(file).fault is None
    head, measured = read_journal(file)
    assert (head, measured) == (HEAD, MEASURED)
    assert msgspec.json.encode(derive(head, measured)) == msgspec.json.encode(derive(HEAD, MEASURED))
    assert disturbed(derive(head, measured))


def test_a_file_of_requests_alone_is_measured_too(tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in closed(5)))
    _, (one,) = read_journal(file)
    assert one.records == closed(5)
    assert one.ending.disturbed == ()
    assert derive(Head(), [one])["requests"] == 5


@given(st.data())
def test_a_file_that_breaks_off_anywhere_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    write(folder / "whole.jsonl")
    whole = (folder / "whole.jsonl").read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    lines = whole[:cut].count(b"\n")
    torn = folder / "torn.jsonl"
    torn.write_bytes(whole[:cut])
    requests = [r for one in MEASURED for r in one.records]
    try:
        _, found = read_journal(torn)
    except DraftmarkError:
        assert lines <= 2  # not even one request
        return
    got = [r for one in found for r in one.records]
    assert got == requests[: len(got)]
    assert len(got) >= lines - 1 - len(found)
    derive(HEAD, found)


def test_a_measurement_that_has_no_end_says_so(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "cut.jsonl")
    writer.begin(HEAD)
    for made in closed(4):
        writer.request(made)
    writer.close()
    head, measured = read_journal(tmp_path / "cut.jsonl")
    assert derive(head, measured)["disturbed"] == [BROKEN_OFF]


OTHER = [b"", b"\n", b"{}", b"nonsense\n{}\n", b"\xff\xfe\n", b'{"tag": 1}\n', b'{"head":{"schema":"x/9"}}\n']


@pytest.mark.parametrize("content", OTHER)
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadInputError):
        read_journal(tmp_path / "x")


def test_a_place_that_cannot_be_written_is_told_before_the_load(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    for place, kind in ((tmp_path / "there", UsageError), (tmp_path, UsageError), (tmp_path / "no/x", UsageError)):
        with pytest.raises(kind):
            JournalWriter(place)
    assert (tmp_path / "there").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BadInputError, match="cannot write"):
        JournalWriter(tmp_path / "x")


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_keeps_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "full.jsonl"
    with files_no_larger_than(6000):
        writer = write(file)
    assert writer.fault is not None
    assert 0 < writer.written < 30
    assert str(writer.written) in str(writer.error())
    _, (one,) = read_journal(file)
    assert one.records == closed(category="code")[: writer.written]


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "x")
    with files_no_larger_than(10), pytest.raises(StorageError):
        writer.begin(HEAD)
    writer.close()
    assert not (tmp_path / "x").exists()
