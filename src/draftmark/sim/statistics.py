"""The lines that a simulated server writes while it serves, in the words of its version. Pure."""

from __future__ import annotations

from draftmark.sim.memory import Memory
from draftmark.sim.turns import Decode, Prefill


class Lines:
    """Writes prefill and decode lines.

    Args:
        memory: Of the start: how large the pools are.
        minor: Version 0.5.minor.
    """

    def __init__(self, memory: Memory, minor: int) -> None:
        self._minor = minor
        self._tokens = max(1, memory.pools.tokens)
        self._slots = memory.pools.slots
        self._window = int(self._tokens * memory.settings.window_ratio) if memory.model.window is not None else None
        self._drafts = memory.settings.draft_tokens

    def prefill(self, told: Prefill) -> str:
        """A pass over prompts."""
        pending = f"#pending-token: {told.pending}, " if self._minor >= 12 else ""
        rate = told.tokens / told.seconds if told.seconds else 0.0
        return (
            f"Prefill batch, #new-seq: {told.sequences}, #new-token: {told.tokens}, #cached-token: 0, "
            f"{self._usage(told.used, told.slots, counts=False)}, #running-req: {told.running}, "
            f"#queue-req: {told.queued}, {pending}cuda graph: False, input throughput (token/s): {rate:.2f}"
        )

    def decode(self, told: Decode) -> str:
        """So many rounds."""
        rate = told.tokens / told.seconds if told.seconds else 0.0
        return (
            f"Decode batch, #running-req: {told.running}, {self._usage(told.used, told.slots, counts=True)}, "
            f"{self._acceptance(told)}cuda graph: {told.graph}, gen throughput (token/s): {rate:.2f}, "
            f"#queue-req: {told.queued}"
        )

    def _usage(self, used: int, slots: int, *, counts: bool) -> str:
        share = used / self._tokens
        if self._slots is not None:
            state = f"mamba num: {slots}, " if counts else ""
            full = f"#full token: {used}, " if counts else ""
            return f"{full}full token usage: {share:.2f}, {state}mamba usage: {slots / max(1, self._slots):.2f}"
        if self._window is not None:
            own, full = min(used, self._window), f"#full token: {used}, " if counts else ""
            kept = f"#swa token: {own}, " if counts else ""
            return f"{full}full token usage: {share:.2f}, {kept}swa token usage: {own / max(1, self._window):.2f}"
        return f"#token: {used}, token usage: {share:.2f}" if counts else f"token usage: {share:.2f}"

    def _acceptance(self, told: Decode) -> str:
        """The rate counts the bonus token up to 0.5.10, and not since."""
        if not self._drafts or not told.rounds:
            return ""
        if self._minor <= 10:
            rate = (told.taken + told.rounds) / (told.rounds * self._drafts)
        else:
            rate = told.taken / (told.rounds * max(1, self._drafts - 1))
        return f"accept len: {1 + told.taken / told.rounds:.2f}, accept rate: {rate:.2f}, "
