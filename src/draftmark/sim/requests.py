"""A request inside a simulated server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from draftmark.sim.acceptance import Draws


class Sink(Protocol):
    """Who is told of an answer's tokens."""

    def tokens(self, request: Request, count: int) -> None:
        """So many more; `request.finished` is set with the last."""
        ...

    def failed(self, request: Request, message: str) -> None:
        """The server gives the request up."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request.

    Attributes:
        prompt: Tokens of it; `most`: of the longest answer.
        draws: What becomes of its drafts; None without speculation.
        entered_s: When it came, simulated.
        output: Tokens put out so far.
        cached: Tokens of prompt and answer that are in the pool; 0 while it waits.
        prefilled: Of the prompt (after a retraction, of prompt and answer), tokens that were passed.
        rounds: Verifications; `histogram`: of them, by how many drafts were taken.
        proposed: Drafts in all; `taken`: those accepted and put out.
        finished: `length`, `stop` or `abort`; None while it runs.
    """

    rid: str
    prompt: int
    most: int
    sink: Sink
    draws: Draws | None
    digest: int = 0
    entered_s: float = 0.0
    output: int = 0
    cached: int = 0
    prefilled: int = 0
    rounds: int = 0
    taken: int = 0
    proposed: int = 0
    histogram: list[int] = field(default_factory=list)
    retractions: int = 0
    finished: str | None = None
    health: bool = False
    on_end: Callable[[], None] | None = None

    @property
    def to_prefill(self) -> int:
        """Tokens that have to be passed before it decodes."""
        return self.prompt + self.output - self.prefilled

    @property
    def accept_len(self) -> float:
        """As SGLang tells it of a request: output tokens a round, the first token among them."""
        return self.output / self.rounds if self.rounds else 1.0
