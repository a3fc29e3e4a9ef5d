"""Who says why a server failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A server that did not become ready, or died, as its trial saw it. Nothing has been stopped by us yet.

    Attributes:
        log: Its stdout and stderr.
        exit_code: Of its main process, negative for a signal; None while it runs or if unknown.
        alive: Its main process runs: it did not become ready in time, but nothing died.
        because: What was seen from outside, without the log: `not ready after 600 s`.
        refusal: Why the system would not run the program at all; None when it ran.
    """

    log: Path
    exit_code: int | None
    alive: bool
    because: str
    refusal: str | None = None


class PostMortem(Protocol):
    """Says why a server failed, from what is left of it."""

    def watch(self) -> None:
        """A server is about to start: what the host's logs say from now on may be about it."""
        ...

    def examine(self, failure: Failure) -> dict[str, object]:
        """The `draftmark.why/1` document, as plain values. Secrets that only the caller knows are still in it.

        It may fail with any exception, and a run goes on without it.
        """
        ...
