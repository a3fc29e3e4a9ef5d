"""What a trial does about a server that did not start or died: `why.json`, or a note that there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftmark.ports import Failure, PostMortem
from draftmark.run.directory import WHY, TrialWriter
from draftmark.run.records import encode_document
from draftmark.run.redact import Redactor

_NAMES = frozenset({"schema", "cause", "confidence", "phase", "role"})
"""Fields whose values are names of our own: a secret that is spelt like one does not stand there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """Keeps what a post-mortem finds, and keeps its own failures away from the run.

    Attributes:
        post_mortem: None: nothing is examined.
        redactor: Knows the service's secrets.
        act: Writes one action to the run's record: (what, slot number, detail).
    """

    post_mortem: PostMortem | None
    redactor: Redactor
    act: Callable[[str, int, dict[str, object]], None]

    def watch(self) -> None:
        """A server is about to start."""
        if self.post_mortem is None:
            return
        try:
            self.post_mortem.watch()
        except Exception:  # then the host's logs are left out: no reason not to measure
            return

    def hold(self, number: int, failure: Failure, writer: TrialWriter) -> None:
        """Examine, and write `why.json`.

        Raises:
            StorageError: It could not be written.
        """
        if self.post_mortem is None:
            return
        try:
            found: Any = self._without_secrets(self.post_mortem.examine(failure))
            data = encode_document(found)
        except Exception as error:  # whatever it is: a run is worth more than the cause of one trial's end
            said = self.redactor.text(f"{type(error).__name__}: {error}")
            self.act("why-failed", number, {"because": said[:300]})
            return
        writer.data(WHY, data)
        self.act("why", number, {"cause": found.get("cause"), "confidence": found.get("confidence")})

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redactor.text(value)
        if isinstance(value, dict):
            return {key: item if key in _NAMES else self._without_secrets(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_secrets(item) for item in value]
        return value
