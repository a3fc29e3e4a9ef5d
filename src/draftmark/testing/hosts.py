"""A host that exists on paper: commands answered from a script, files from a dictionary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from draftmark.ports import Completed

NOT_INSTALLED = Completed(None, stderr="No such file or directory", missing=True)


class ScriptedHost:
    """ports.Host that says what it was told to say.

    Args:
        answers: Regular expression → what the command says whose words, joined by blanks, it is found in. The first
            that fits counts; a command that none fits is not installed. Text stands for output and status 0.
        files: Path → content, or the error that reading it raises. Others do not exist.
        name: Host name.
        is_root: Whether commands run as root.
    """

    def __init__(
        self,
        answers: Mapping[str, Completed | bytes | str],
        files: Mapping[str, bytes | OSError] | None = None,
        *,
        name: str = "gpu1",
        is_root: bool = True,
    ) -> None:
        self._answers = dict(answers)
        self._files = dict(files or {})
        self._name = name
        self._is_root = is_root
        self.asked: list[tuple[str, ...]] = []
        self.running = 0

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def is_root(self) -> bool:
        """As given."""
        return self._is_root

    def run(self, argv: Sequence[str], *, timeout_s: float = 20.0, limit_bytes: int = 8 << 20) -> Completed:
        """The answer, cut at the limit."""
        said = self._answer(argv)
        if len(said.stdout) <= limit_bytes:
            return said
        return Completed(-9, said.stdout[:limit_bytes], said.stderr, cut=True)

    def stream(self, argv: Sequence[str], *, timeout_s: float = 600.0) -> ScriptedStream:
        """The answer in pieces that respect no line. `running` counts the streams that were not closed."""
        self.running += 1
        return ScriptedStream(self, self._answer(argv))

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes:
        """A file of the script.

        Raises:
            OSError: As scripted, or FileNotFoundError.
        """
        content = self._files.get(path, FileNotFoundError(2, "No such file or directory"))
        if isinstance(content, OSError):
            raise content
        return content[:limit_bytes]

    def _answer(self, argv: Sequence[str]) -> Completed:
        self.asked.append(tuple(argv))
        words = " ".join(argv)
        for pattern, said in self._answers.items():
            if re.search(pattern, words):
                if isinstance(said, Completed):
                    return said
                return Completed(0, said.encode() if isinstance(said, str) else said)
        return NOT_INSTALLED


class ScriptedStream:
    """ports.Stream over an answer."""

    def __init__(self, host: ScriptedHost, said: Completed, piece: int = 61) -> None:
        self._host = host
        self._said = said
        self._piece = piece
        self._at = 0
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        """Pieces."""
        while self._at < len(self._said.stdout) and not self._closed:
            self._at += self._piece
            yield self._said.stdout[self._at - self._piece : self._at]

    def close(self) -> Completed:
        """How it ended; cut when not all was taken."""
        self._host.running -= not self._closed
        self._closed = True
        said = self._said
        cut = self._at < len(said.stdout)
        return Completed(-9 if cut else said.status, b"", said.stderr, cut, said.timed_out, said.missing)
