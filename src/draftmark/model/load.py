"""What is asked of a server, and what became of each request."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask, with its sampling, so that the same text is asked the same way of every arm.

    Attributes:
        id: Unique within its workload.
        messages: The conversation to send.
        max_tokens: Most tokens the answer may have.
        temperature: 0 is greedy.
        seed: Sampling seed; None leaves it to the server.
        category: The kind of text, as its data set names it (`coding`, `roleplay`, …); None where it does not.
        follow_ups: What the user says next, turn by turn, each sent with the conversation and the answers so far.
        token_ids: Sent in place of the messages, for pure capacity; None, as nearly always, for real text.
        forced: The answer shall have exactly `max_tokens` tokens, whatever the model would say (`ignore_eos`).
    """

    id: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    category: str | None = None
    follow_ups: tuple[str, ...] = ()
    token_ids: tuple[int, ...] | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A named set of prompts of one kind; kinds are reported apart, because speculation differs between them.

    Attributes:
        name: `copy`, `chat`, or the stem of the user's file.
        prompts: In the order they are sent.
        source: `built-in` or the file's name.
        about: One line: what kind of text it is.
    """

    name: str
    prompts: tuple[Prompt, ...]
    source: str = "built-in"
    about: str = ""

    def __post_init__(self) -> None:
        if not self.prompts:
            raise ValueError(f"workload {self.name} has no prompts")

    @property
    def sha256(self) -> str:
        """Hash of everything that is sent; runs with different hashes are not compared."""
        digest = hashlib.sha256(b"[")  # of one JSON list, which need not be held as a whole
        for i, p in enumerate(self.prompts):
            messages = [[m.role, m.content] for m in p.messages]
            entry = [p.id, messages, p.max_tokens, p.temperature, p.seed, *_further(p)]
            digest.update((", " if i else "").encode() + json.dumps(entry, ensure_ascii=False).encode())
        digest.update(b"]")
        return digest.hexdigest()


def _further(prompt: Prompt) -> list[object]:
    """What few prompts have; a set without it keeps the hash that it had before these fields were thought of."""
    if not (prompt.follow_ups or prompt.token_ids or prompt.forced):
        return []
    return [list(prompt.follow_ups), list(prompt.token_ids or ()), prompt.forced]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What one request did. One line of `requests.jsonl`; every figure of a measurement follows from these.

    Attributes:
        tag: `bench-27`: sent as the request id, so that the server's log can tell ours from others.
        workload: Name of the workload it belongs to.
        prompt_id: Which prompt.
        concurrency: The closed loop's number of slots; in an open loop the most that may be under way at once, 0
            for no limit.
        warmup: Sent to fill the slots; not counted in any figure.
        intended_at_s: Open loop: when the schedule wanted it sent. What `sent_at_s` is later by is waiting that its
            user would feel, though no server was asked yet. None in a closed loop.
        turn: 0 for the first question of a conversation, 1 for its first follow-up, …
        category: Of the prompt.
        sent_at_s: The first byte was written. Below 0 for the warm-up of an open loop, sent before the begin.
        connect_s: How long opening a connection for it took, before it was sent; None over a kept one.
        first_byte_at_s: First byte of the answer's body.
        first_token_at_s: The first chunk that carries text.
        last_token_at_s: The last chunk that carries text.
        end_at_s: The answer was complete, or the error was seen.
        chunks: (seconds since `sent_at_s`, cumulative output tokens) per chunk with text.
        chunk_counts: Where the per-chunk counts come from: `server` (cumulative counts in the stream),
            `spread` (the server's total shared evenly over the chunks), `chunks` (one a chunk: an assumption).
        prompt_tokens: As the server counts them.
        output_tokens: As the server counts them; None when it gave no count.
        drafted_tokens: Draft tokens proposed for this request, from the server; None if not reported.
        accepted_tokens: Draft tokens accepted.
        accepted_histogram: Verification rounds by the number of drafts accepted in them, from none on; None where
            the server does not tell.
        finish: The server's finish reason.
        error: Kind of error, such as `http-500`, `reset`, `no-end`; `cut` when we ended it; None when it completed.
        error_detail: The server's own words, cut at 300 characters.
        text_sha256: Hash of the text received, to see whether two arms said the same.
    """

    tag: str
    workload: str
    prompt_id: str
    concurrency: int
    warmup: bool = False
    intended_at_s: float | None = None
    turn: int = 0
    category: str | None = None
    sent_at_s: float
    connect_s: float | None = None
    first_byte_at_s: float | None = None
    first_token_at_s: float | None = None
    last_token_at_s: float | None = None
    end_at_s: float
    chunks: tuple[tuple[float, float], ...] = ()
    chunk_counts: str = "spread"
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_histogram: tuple[int, ...] | None = None
    finish: str | None = None
    error: str | None = None
    error_detail: str | None = None
    text_sha256: str | None = None
