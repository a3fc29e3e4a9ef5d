"""Python tracebacks in a log: kept whole, chained exceptions in order, the ranks that print at once separated.

A traceback is followed by shape, not by place: frames are indented, the exception line is not. Lines of other
processes may stand in between; a line that bears another process's prefix never joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from draftmark.postmortem.model import Line

_BEGIN = "Traceback (most recent call last)"
_REQUEST = re.compile(
    r"""^(?:Receive|Finish)(?:d)?: obj=|\bGenerateReqInput\(|^Received request \S+: ?|(?:^|[|:] )prompt: |"""
    r"""\bprompt: ?['"]|\binputs?: ?['"]|["']messages["']: ?\[|\bmessages=\[|"""
    r"""["'](?:prompt|text|content|inputs)["']: ?["']|\btext='"""
)
"""A logged request: what a user wrote, not what the server says."""
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s?(?P<message>.*))?$")
_NO_TYPE = re.compile(r"^(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|NOTE|HINT|Process|Exception ignored)\b")
_RECORD = re.compile(
    r"^(?:(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b|\[(?!\d+/\d+\])|SIGQUIT|Received sig|kill_process_tree|"
    r"Subprocess |(?:Decode|Prefill) batch|Process \S+:$|(?:\w+ )?(?:Scheduler|Manager) |terminate called)"
)
_PATIENCE = 400  # lines of others that may stand inside a traceback
_MESSAGE_LINES = 40
_LINKS = 30  # of a chain: the root comes first
_MOST = 100  # of thousands of tracebacks, the first and the last half of so many


@dataclass(slots=True)
class Raised:
    """One exception of a chain.

    Attributes:
        type: As written, with its module: `torch.OutOfMemoryError`.
        message: First line of the message.
        line: The line that names it.
        more: Further lines of the message.
        frames: `file:function` and the source line, from the outermost call to the innermost.
        code: The source line that raised it, as quoted; None when the traceback quotes none.
    """

    type: str
    message: str
    line: Line
    more: list[Line] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    code: Line | None = None

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rpartition(".")[2]

    @property
    def text(self) -> str:
        """Type and message in one line."""
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(slots=True)
class Trace:
    """One traceback: exceptions in the order in which they were raised, the first is the root.

    Attributes:
        begin: The line with `Traceback (most recent call last)`; may hold a header before it.
        order: Place of `begin` among the lines given.
        end: Place of its last line among the lines given.
        broken: An exception of the chain is missing: the log lost lines.
        inner: Places of frames and quoted source lines: what stands there was not said, only quoted.
    """

    begin: Line
    order: int
    end: int
    raised: list[Raised] = field(default_factory=list)
    broken: bool = False
    inner: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Open:
    trace: Trace
    frames: list[str] = field(default_factory=list)
    code: Line | None = None
    chained: bool = False
    closed: bool = False  # the exception line has been seen
    message: bool = False  # lines of its message may follow
    fresh: bool = True  # nothing has followed the first line yet: it may be written twice
    seen: int = 0


def read_traces(lines: Sequence[Line]) -> list[Trace]:
    """All tracebacks of one source, by their first lines."""
    reader = _Reader()
    for order, line in enumerate(lines):
        reader.take(order, line)
    found = [trace for trace in reader.traces if trace.raised]
    return found if len(found) <= _MOST else [*found[: _MOST // 2], *found[-_MOST // 2 :]]


def quotes_a_request(line: Line) -> bool:
    """Whether a line is a logged request: whatever alarming words stand in it are a user's."""
    return _REQUEST.search(line.text) is not None


def leaves_open(line: Line) -> bool:
    """Whether a logged request's text goes on in the next line: it is quoted, and the quote is not closed."""
    text = line.text.rstrip()
    return text.count("'") % 2 == 1 and text[-1:] not in "')}]\""


class _Reader:
    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self._open: dict[tuple[str, str], _Open] = {}
        self._last: tuple[str, str] | None = None

    def take(self, order: int, line: Line) -> None:
        if _BEGIN in line.text and not quotes_a_request(line):
            self._begin(order, line)
        elif self._open:
            self._follow(order, line)

    def _begin(self, order: int, line: Line) -> None:
        key = (line.ident, line.actor)
        current = self._open.get(key)
        if current is None and self._last and self._last[1].startswith(line.actor):
            current = self._open.get(self._last) if self._last[0] == line.ident else None
            key = self._last if current is not None and self._last else key
        if current is not None and (current.chained or current.fresh):
            current.chained = current.closed = current.message = False
            current.frames, current.fresh = [], True
        else:
            trace = Trace(line, order, order)
            self.traces.append(trace)
            self._open[key] = _Open(trace)
        self._last = key

    def _follow(self, order: int, line: Line) -> None:
        key = (line.ident, line.actor)
        current = self._open.get(key)
        if current is None and self._last and self._last[0] == line.ident and self._last[1].startswith(line.actor):
            # No prefix of its own, or only what a launcher puts before every line of its task.
            key, current = self._last, self._open.get(self._last)
        if current is None:
            return
        current.seen += 1
        current.fresh = current.fresh and not line.text.lstrip().startswith("File ")
        if current.seen > _PATIENCE:
            del self._open[key]
            return
        raised = len(current.trace.raised)
        if _read_into(current, line):
            current.trace.end = order
            if len(current.trace.raised) == raised and not current.closed:
                current.trace.inner.add(order)


def _read_into(current: _Open, line: Line) -> bool:
    """Whether the line belongs to the traceback."""
    text = line.text
    if text.startswith(_CHAIN):
        current.trace.broken = current.trace.broken or not current.closed
        current.chained, current.message, current.seen = True, False, 0
        return True
    if not text.strip():
        return False
    if current.closed:
        return _message(current, line)
    frame = _FRAME.match(text)
    if frame:
        current.frames.append(f"{frame['file']}:{frame['function'] or ''}")
        return True
    if text[0] in " \t":
        if text.strip(" \t^~"):
            current.code = line
            if current.frames:
                current.frames[-1] += " " + text.strip()[:120]
        return True
    found = None if _NO_TYPE.match(text) else _EXCEPTION.match(text)
    if found is None or (not current.frames and not current.trace.raised and not found["message"]):
        return False
    raised = Raised(found["type"], found["message"] or "", line, frames=current.frames, code=current.code)
    if len(current.trace.raised) < _LINKS:
        current.trace.raised.append(raised)
    current.code = None
    current.frames, current.closed, current.message, current.seen = [], True, True, 0
    return True


def _message(current: _Open, line: Line) -> bool:
    """A further line of the exception's message."""
    last = current.trace.raised[-1]
    if (
        not current.message
        or len(last.more) >= _MESSAGE_LINES
        or _RECORD.match(line.text)
        or _other(last.line, line)
    ):
        current.message = False
        return False
    if line.text != last.line.text:
        last.more.append(line)
    return True


def _other(first: Line, line: Line) -> bool:
    """Whether a line is a record of its own: stamped although the exception's line was not."""
    return (line.stamp is not None) != (first.stamp is not None) or line.actor != first.actor


def frames_in(raised: Iterable[Raised], *needles: str) -> bool:
    """Whether a frame of one of them holds one of the needles."""
    return any(needle in frame for one in raised for frame in one.frames for needle in needles)
