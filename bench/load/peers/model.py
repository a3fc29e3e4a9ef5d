"""The words of the table: a peer, and what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
MODEL = "stream-lab"
"""The emitter's name for what it serves."""
PROMPT_TOKENS = 32
"""Of each prompt that a peer makes up; draftmark and the plain client have texts of about that length."""


@dataclass(frozen=True)
class Asked:
    """What a client shall do.

    Attributes:
        concurrency: So many requests at once at most; 0 sets no limit.
        tokens: Of each answer.
        rate: Open loop, requests a second at even distances; None is a closed loop.
        folder: Where the client is started and may write. It holds `tokenizer`, whose words the emitter's are.
    """

    url: str
    api: str
    concurrency: int
    requests: int
    tokens: int
    rate: float | None = None
    workers: int = 1
    folder: Path = field(default_factory=Path)

    @property
    def endpoint(self) -> str:
        """Where its requests go."""
        return self.url + PATHS[self.api]


Figures = dict[str, Any]
"""The emitter's result form: ../shared/stream-lab/README.md."""


@dataclass(frozen=True)
class Peer:
    """One load generator.

    Attributes:
        install: What to type to have it, in a virtual environment of its own.
        command: Its command line. A first word without a slash is a program of that environment.
        figures: From its standard output, and what it left in the folder, to the emitter's result form.
        warmup: How many requests it sends before those that it counts, by its concurrency.
        burst_requests: How many answers of 1000 tokens measure its cost; less than 512 where it takes minutes.
        package: Its distribution, where that has another name.
    """

    name: str
    install: str
    command: Callable[[Asked], list[str]]
    figures: Callable[[str, Path], Figures]
    warmup: Callable[[int], int] = lambda _: 0
    burst_requests: int = 512
    package: str = ""


def one_a_slot(concurrency: int) -> int:
    """As many requests of warm-up as slots, like draftmark's own."""
    return concurrency
