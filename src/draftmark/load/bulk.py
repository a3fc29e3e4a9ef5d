"""Many events at once: in one stream, nearly all are alike in everything but their text.

What is alike is learnt from one event and then looked for as bytes, with no JSON read and no object made. That the
events found so say what reading each would say follows from how JSON is read, from left to right: after the same
beginning the reader stands within the same string, letters that are neither quote nor backslash nor control
character leave it there, and the same end completes the same event. That this string is the event's text is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from draftmark.load.events import DECODE_ERRORS
from draftmark.load.sse import BETWEEN

_PROBE = "draftmark"
_decode_text = msgspec.json.Decoder(str).decode


class Likeness:
    """What the plain events of one stream share.

    Attributes:
        before: The bytes up to the text.
        after: The bytes from its end.
        between: From the end of one text to the beginning of the next one.
    """

    __slots__ = ("after", "before", "between")

    def __init__(self, before: bytes, after: bytes) -> None:
        self.before = before
        self.after = after
        self.between = after + BETWEEN + before


def likeness(data: bytes, read: Callable[[bytes], str | None]) -> Likeness | None:
    """Learn from one event.

    Args:
        data: The event.
        read: The text of a plain event; None of any other.

    Returns:
        None where its text cannot be told from the rest of it.
    """
    said = read(data)
    if not said:
        return None
    quoted = b'"%b"' % said.encode("utf-8", "surrogatepass")
    before, found, after = data.partition(quoted)
    if not found or plain_text([quoted[1:-1]]) != said:
        return None
    made = Likeness(before + b'"', b'"' + after)
    return made if read(made.before + _PROBE.encode() + made.after) == _PROBE else None


def plain_text(texts: Sequence[bytes]) -> str | None:
    """What these texts, as they stand in their events, say together; None where one needs to be read by itself."""
    joined = b"".join(texts)
    if b'"' in joined or b"\\" in joined or b"" in texts:
        return None
    try:
        text = _decode_text(b'"%b"' % joined)
        if len(text) != len(joined):  # a letter of several bytes must not be cut in two, each half in its own event
            for part in texts:
                part.decode()
    except DECODE_ERRORS:
        return None
    return text
