"""Log files that something on the host names, of any size."""

from __future__ import annotations

import shlex

from draftmark.postmortem.collect.gathering import Gathering, reason
from draftmark.postmortem.collect.streams import Output, peeked


def read_file(gathering: Gathering, path: str) -> None:
    """Keep a file, or say why it cannot be read."""
    command = shlex.join(("less", path))
    try:
        gathering.host.read(path, 1)  # says why not, and that it is a regular file: a pipe would keep us waiting
    except OSError as error:
        because = error.strerror or str(error)
        gathering.miss(path, because, command, as_root=isinstance(error, PermissionError))
        return
    argv = ("cat", "--", path)
    output = Output(gathering.host, argv)
    chunks = peeked(output)
    if chunks is not None:
        gathering.add(path, chunks, argv=command)
        return
    ended = output.ended
    gathering.miss(path, "it is empty" if ended is None or ended.ok else reason(ended, argv), command)
