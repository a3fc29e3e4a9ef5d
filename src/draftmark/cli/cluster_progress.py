"""Shows a run over several nodes as it goes: a row a node; plain lines where there is no terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from draftmark.model import Trial, TrialStatus
from draftmark.run.records import Slot


class CrowdProgress:
    """tune.parallel.Crowd on a console."""

    def __init__(self, console: Console, nodes: tuple[str, ...], *, total: int, done: int) -> None:
        self._console = console
        self._width = max(map(len, nodes))
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._trials = self._bars.add_task("trials", total=total, completed=done, note="")
        self._rows: dict[str, TaskID] = {node: self._bars.add_task(node, total=None, note="") for node in nodes}
        self._told: dict[str, str] = {}

    def __enter__(self) -> CrowdProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, node: str, slot: Slot, what: str, limit_s: float | None) -> None:
        """A new thing that a node waits for; its clock starts anew."""
        limit = f", up to {limit_s:.0f} s" if limit_s is not None else ""
        note = f"{slot.arm.label}: {what}{limit}"
        self._bars.reset(self._rows[node], total=None, note=note)
        if not self._console.is_terminal and self._told.get(node) != note:
            self._told[node] = note
            self.note(f"  {node:<{self._width}}  {note}", style="dim")

    def progress(self, node: str, done: int, total: int, tok_s: float | None, errors: int) -> None:
        """How far its measurement is."""
        del tok_s, errors  # figures of one node mean nothing beside another's
        self._bars.update(self._rows[node], completed=done, total=total)

    def free(self, node: str, note: str) -> None:
        """A node has nothing to do."""
        self._bars.reset(self._rows[node], total=None, note=note)

    def trial_ends(self, trial: Trial) -> None:
        """One line a trial, kept on the screen."""
        self._bars.advance(self._trials)
        start = f"ready in {trial.start_s:.1f} s, " if trial.start_s is not None else ""
        line = (
            f"  {trial.node or '':<{self._width}}  {trial.number:>3}  round {trial.round}  {trial.arm.label:<10} "
        )
        line += f"{start}{trial.total_s:.1f} s in all"
        if trial.status is not TrialStatus.MEASURED:
            line += f"  {trial.status.value}: {trial.because}"
        self.note(line)

    def note(self, text: str, style: str | None = None) -> None:
        """A line for the user that stays."""
        self._console.print(text, markup=False, soft_wrap=True, style=style)
