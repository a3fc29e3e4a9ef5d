"""Logs that a client prints as the server wrote them, on stdout and stderr, with its own complaints among them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from draftmark.ports import Completed
from draftmark.postmortem.collect.gathering import Gathering, denied, reason
from draftmark.postmortem.collect.streams import Counted, Output, peeked

_COMPLAINT = 4096  # bytes: a client that fails says little more than why


def merged_log(gathering: Gathering, name: str, argv: Sequence[str], unread: str, *, limit: int) -> None:
    """Keep a log of both streams in the order in which they come.

    Args:
        gathering: What comes together.
        name: Of the source.
        argv: Command that prints the log.
        unread: What the log is called where it cannot be read.
        limit: Lines that the command was asked for at most.
    """
    # The port keeps the streams apart, and only a shell can join them.
    output = Output(gathering.host, ("sh", "-c", 'exec "$@" 2>&1', "sh", *argv))
    counted = Counted(output, (b"\n",))
    chunks = peeked(counted)
    ended = output.ended or Completed(None)
    if chunks is None:
        because = "it is empty" if ended.ok else reason(ended, argv)
        gathering.miss(unread, because, argv)
        return
    source = gathering.read(name, chunks)
    ended = output.ended or Completed(None)
    if not ended.ok and counted.size < _COMPLAINT:
        said = counted.head.decode("utf-8", "replace")
        told = Completed(ended.status, b"", said, ended.cut, ended.timed_out, ended.missing)
        gathering.miss(unread, reason(told, argv), shlex.join(argv), as_root=denied(said))
        return
    gathering.sources.append(replace(source, command=shlex.join(argv)))
    if counted.found.get(b"\n", 0) >= limit:
        gathering.annotate((f"only the newest {limit} lines were read",))
    if ended.timed_out:
        gathering.annotate(("reading it took too long: the end is missing",))
