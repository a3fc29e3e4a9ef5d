"""Derives a run's documents and writes them: used by `tune` as it goes and by `report` afterwards."""

from __future__ import annotations

from typing import Any

import msgspec

from draftmark.cli.output import print_json, result_console
from draftmark.errors import BadInputError
from draftmark.run.directory import RunDirectory
from draftmark.run.records import encode_document
from draftmark.tune.observing import measurements
from draftmark.tune.result import derive


def rederive(directory: RunDirectory, *, only: int | None = None) -> dict[str, Any]:
    """`result.json` and each trial's `measurement.json`, from the records alone.

    Args:
        directory: The run.
        only: Number of the one trial that is new, while a run goes on: the others' files are there already.
    """
    record = directory.load()
    try:
        result = derive(record)
    except (ArithmeticError, LookupError, ValueError) as error:
        raise BadInputError(
            f"the records in {directory.path} contradict one another",
            evidence=(f"{type(error).__name__}: {error}",),
            next_step="they were edited or damaged; begin a new run",
        ) from None
    for trial in record.trials:
        if only not in (None, trial.trial.number):
            continue
        found = measurements(trial, record.info)
        directory.write(f"trials/{trial.trial.directory}/measurement.json", encode_document(found))
    data = encode_document(result)
    directory.write("result.json", data)
    # What people are shown is what a script reads from the file.
    return dict(msgspec.json.decode(data))


def write_reports(directory: RunDirectory, result: dict[str, Any]) -> None:
    """`report.html` and `report.md`."""
    from draftmark.report.html import render_html
    from draftmark.report.markdown import render_markdown

    title = f"draftmark: {result['service']}"
    directory.write("report.html", render_html(result, title=title).encode())
    directory.write("report.md", render_markdown(result).encode())


def show(directory: RunDirectory, result: dict[str, Any], *, as_json: bool, to_run: str = "") -> None:
    """The result on stdout: for a script; or for a person, with the command to run and the report's place."""
    if as_json:
        print_json(result)
        return
    from draftmark.report.terminal import print_result

    report = str(directory.path / "report.html")
    print_result(result, result_console(), paths=f"{to_run}\n\n{report}" if to_run else report)
