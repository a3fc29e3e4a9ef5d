"""Shows a run as it goes: a bar with what is awaited and for how long; plain lines where there is no terminal."""

from __future__ import annotations

import re
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from draftmark.model import Trial, TrialStatus
from draftmark.run.records import Slot

_DIGITS = re.compile("[0-9]+")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class RunProgress:
    """tune.trial.Observer on a console."""

    def __init__(self, console: Console, *, total: int | None, done: int) -> None:
        self._bars = _bars(console)
        self._left = None if total is None else total - done  # what a search asks for is not known beforehand
        self._spent_s: list[float] = []
        self._trials: TaskID = self._bars.add_task("trials", total=total, completed=done, note="")
        self._arm = self._told = ""
        self._phase: TaskID = self._bars.add_task("", total=None, note="")

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def trial_begins(self, slot: Slot) -> None:
        """Name the arm on the bar."""
        note = f"round {slot.round}, {slot.arm.label}"
        if self._spent_s and self._left is not None:
            left_s = self._left * sum(self._spent_s) / len(self._spent_s)
            note += f", about {left_s / 60:.0f} min left" if left_s >= 90 else f", about {left_s:.0f} s left"
        self._bars.update(self._trials, note=note)
        self._arm, self._told = f"{slot.number:>3}  ", ""

    def phase(self, slot: Slot, what: str, limit_s: float | None) -> None:
        """A new thing to wait for; its clock starts anew."""
        del slot
        self.waits(what, limit_s)

    def waits(self, what: str, limit_s: float | None) -> None:
        """The same outside of trials."""
        if not self._bars.console.is_terminal:
            self._tell(what)
        note = f"up to {limit_s:.0f} s" if limit_s is not None else ""
        self._bars.reset(self._phase, description=what, total=None, note=note)

    def _tell(self, what: str) -> None:
        """A line for each new thing, where there is no bar; a count of requests alone is nothing new."""
        words = _DIGITS.sub("", what)
        if words != self._told:
            self._told = words
            self._bars.console.print(f"  {self._arm}{what}", style="dim", markup=False, soft_wrap=True)

    def progress(self, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far the measurement is."""
        self._bars.update(self._phase, completed=done, total=total, note=_note(tok_s, errors))

    def trial_ends(self, trial: Trial) -> None:
        """One line a trial, kept on the screen."""
        self._bars.advance(self._trials)
        if self._left is not None:
            self._left -= 1
        self._spent_s.append(trial.total_s)
        start = f"ready in {trial.start_s:.1f} s, " if trial.start_s is not None else ""
        line = (
            f"  {trial.number:>3}  round {trial.round}  {trial.arm.label:<10} {start}{trial.total_s:.1f} s in all"
        )
        self._arm, self._told = "     ", ""
        if trial.status is not TrialStatus.MEASURED:
            line += f"  {trial.status.value}: {trial.because}"
        self._bars.console.print(line, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line for the user that stays."""
        self._bars.console.print(text, markup=False, soft_wrap=True)


def _note(tok_s: float | None, errors: int) -> str:
    return ", ".join(
        part
        for part in (f"{tok_s:.0f} tok/s" if tok_s is not None else "", f"{errors} errors" if errors else "")
        if part
    )
