from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftmark.load.sse import SseSplitter

DATA = st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"").replace(b"\0", b""))


def encode(events: list[list[bytes]], newlines: list[bytes], comments: list[bool]) -> bytes:
    """A stream in which each event's lines have their own newline and may be preceded by a comment."""
    out = b""
    for lines, newline, comment in zip(events, newlines, comments, strict=True):
        if comment:
            out += b": keep-alive" + newline * 2
        for line in lines:
            out += b"data: " + line + newline
        out += newline
    return out


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(c, len(stream)) for c in cuts} | {0, len(stream)})
    splitter = SseSplitter()
    return [e for a, b in pairwise(places) for e in splitter.feed(stream[a:b])]


@given(st.data())
def test_any_split_of_the_bytes_gives_the_same_events(data: st.DataObject) -> None:
    events = data.draw(st.lists(st.lists(DATA, min_size=1, max_size=3), max_size=6))
    n = len(events)
    newlines = data.draw(st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=n, max_size=n))
    comments = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    stream = encode(events, newlines, comments)
    cuts = data.draw(st.lists(st.integers(0, max(len(stream), 1)), max_size=12))
    expected = [b"\n".join(lines) for lines in events]
    assert split(stream, cuts) == expected
    assert split(stream, list(range(len(stream)))) == expected


def test_an_event_is_finished_by_its_blank_line_only() -> None:
    splitter = SseSplitter()
    assert splitter.feed(b"data: one\n") == []
    assert splitter.feed(b"\r") == []
    assert splitter.feed(b"\ndata: two\n\n") == [b"one", b"two"]


def test_other_fields_and_comments_are_passed_over() -> None:
    stream = b"\xef\xbb\xbf: hello\nevent: error\nid: 4\nretry: 10\ndata:no space\n\n: alone\n\n\n\ndata\n\n"
    assert SseSplitter().feed(stream) == [b"no space", b""]


def test_flush_gives_the_event_that_lacks_its_end() -> None:
    for stream in (b"data: a\n\ndata: [DONE]", b"data: a\r\n\r\ndata: [DONE]\r\n"):
        splitter = SseSplitter()
        assert splitter.feed(stream) == [b"a"]
        assert splitter.flush() == [b"[DONE]"]
        assert splitter.flush() == []


def test_a_long_line_in_many_pieces_is_not_joined_again_and_again() -> None:
    splitter = SseSplitter()
    piece = b"x" * 100
    assert splitter.feed(b"data: ") == []
    for _ in range(20_000):
        assert splitter.feed(piece) == []
    (event,) = splitter.feed(b"\n\n")
    assert len(event) == 2_000_000
