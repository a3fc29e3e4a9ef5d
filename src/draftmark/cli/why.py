"""`draftmark why`: the cause of a server's death, with the lines that prove it. Touches nothing."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from draftmark.cli import compose_why, hosts
from draftmark.cli.output import print_json, progress_console, result_console
from draftmark.cli.why_progress import WhyProgress
from draftmark.cli.why_reference import FORMS, STDIN, Asked, Service, asked, parse
from draftmark.errors import BadInputError, UsageError
from draftmark.service.local import LocalHost

if TYPE_CHECKING:
    from draftmark.cli.services import Member
    from draftmark.ports import Host
    from draftmark.postmortem.collect import Collected
    from draftmark.postmortem.model import Source, Unread, Verdict

UNSETTLED = 40
"""Exit status of a verdict that names no cause."""

_RUNS = 3
_MOST_RUNS = 100

_ABOUT = """\
Names the cause, how sure it is, the lines that prove it, what was ruled out and why, and what was not read
together with the command that reads it. Without proof it says `unsettled`, and what would settle it.

  draftmark why unit:sglang-qwen.service          the last death of a systemd unit, on this host
  draftmark why qwen                              by its name in draftmark.toml
  draftmark why docker:vllm unit.log              a container's, with one more log
  draftmark why logs.tar.gz kernel.log            from files, folders and archives
  kubectl logs -p llm-0 | draftmark why -         from a pipe
  draftmark why --explain stop-timeout-sigkill    what a cause means

Exit status: 0 a cause is named, or the service is healthy · 40 unsettled · 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = _ABOUT
    parser.add_argument(
        "things", nargs="*", metavar="SERVICE|PATH", help=f"{FORMS}; files, folders, archives; - is stdin"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout")
    form.add_argument("--markdown", action="store_true", help="Markdown on stdout, to paste into a ticket")
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write a page with a timeline, in one file",
    )
    parser.add_argument("--explain", metavar="CAUSE", help="what a cause means and what proves it; list names all")
    parser.add_argument(
        "--runs", type=_runs, default=_RUNS, metavar="N", help=f"the service's last N starts (default {_RUNS})"
    )
    parser.add_argument(
        "--since", metavar="WHEN", help='nothing older: "2026-11-29 17:50", yesterday, "2 hours ago"'
    )
    hosts.add_argument(parser)
    parser.add_argument(
        "--service", metavar="NAME", help="which unit or container is meant, where the evidence is about several"
    )


def run(args: argparse.Namespace) -> int:
    """Examine, and say."""
    if args.explain is not None:
        return _explain(args)
    question = asked(args.things)
    _check(question, args)
    if len(question.members) > 1:
        return _several(question.members, args)
    host = hosts.host_at(question.members[0].host) if question.members else hosts.host_of(args)
    return _say(_examine(question, runs=args.runs, since=args.since, unit=args.service, host=host), args)


def _several(members: Sequence[Member], args: argparse.Namespace) -> int:
    """Of a service of several units the one that failed first, and in a line what became of the others."""
    from draftmark.cli.why_members import examine_members, first_to_fail

    def examine(member: Member) -> Verdict:
        question = Asked(Service("unit", member.unit), ())
        return _examine(question, runs=args.runs, since=args.since, host=hosts.host_at(member.host))

    found = examine_members(members, examine)
    shown = first_to_fail(found)
    assert shown.verdict is not None  # noqa: S101 - one of them was read
    verdict, host = shown.verdict, shown.member.host
    if host and not args.json:
        verdict = dataclasses.replace(verdict, service=f"{verdict.service or shown.member.unit} on {host}")
    return _say(verdict, args, [(each.line(shown), each.document(shown)) for each in found])


def examine_paths(paths: Sequence[str], stdin: BinaryIO | None = None) -> Verdict:
    """The verdict on files, folders, archives and, for `-`, stdin. Secrets are still in it."""
    return _examine(Asked(None, tuple(paths)), stdin=stdin)


def examine_service(reference: str) -> Verdict:
    """The verdict on a service of this host, such as `unit:llm.service`. Secrets are still in it."""
    return _examine(Asked(parse(reference), ()))


def _examine(
    question: Asked,
    *,
    runs: int = _RUNS,
    since: str | None = None,
    unit: str | None = None,
    stdin: BinaryIO | None = None,
    host: Host | None = None,
) -> Verdict:
    from draftmark.postmortem.diagnose import diagnose
    from draftmark.postmortem.intake import Hints, read_paths

    tables = compose_why.tables()
    hints = Hints(tables.literals)
    sources: list[Source] = []
    unread: list[Unread] = []
    named = unit is not None  # by the user: it has to occur
    with WhyProgress(progress_console) as progress:
        if question.service is not None:
            progress.awaits(f"what this host knows of {question.service}")
            found = compose_why.collect(question.service, host or LocalHost(), hints=hints, runs=runs, since=since)
            _something_of_it(question.service, found)
            sources += found.sources
            unread += found.unread
            unit = unit or found.unit
        if question.paths:
            progress.awaits("the files")
            intake = read_paths(question.paths, hints=hints, stdin=stdin, progress=progress.read)
            sources += intake.sources
            unread += intake.unread
        progress.awaits("the verdict")
        return diagnose(sources, tables=tables, unit=unit, unread=unread, named=named)


_OF_THE_HOST = ("kernel log", "journal of other programs", "nvidia-smi", "docker's journal", "node events")


def _something_of_it(service: Service, found: Collected) -> None:
    """A verdict on a service of which nothing at all could be read would be about the host's other troubles.

    Raises:
        BadInputError: Its state, log and events are all out of reach.
    """
    if any(not source.name.startswith(_OF_THE_HOST) for source in found.sources):
        return
    missed = [item for item in found.unread if not item.source.startswith(_OF_THE_HOST)]
    raise BadInputError(
        f"Nothing of {service} could be read on this host.",
        evidence=tuple(f"{item.source}: {item.because}" for item in missed[:6]),
        next_step=missed[0].command if missed else "hand over its log as a file",
    )


def _say(verdict: Verdict, args: argparse.Namespace, members: Sequence[tuple[str, dict[str, object]]] = ()) -> int:
    """Show it; `members`: of a service of several units, a line and a document each."""
    from draftmark.report.why_names import with_short_names
    from draftmark.report.why_safe import safe

    verdict, marker = safe(verdict), compose_why.marker(verdict.cause)
    shown = with_short_names(verdict)
    if args.html is not None:
        from draftmark.report.why_html import render_html

        _write_page(args.html, render_html(shown, marker))
    if args.json:
        from draftmark.postmortem.document import document

        print_json({**document(verdict), **({"members": [each for _, each in members]} if members else {})})
    elif args.markdown:
        from draftmark.report.why_markdown import render_markdown

        listed = "".join(f"- {line}\n" for line, _ in members)
        _write(render_markdown(shown) + (f"\n**Members**\n\n{listed}" if members else ""))
    else:
        from draftmark.report.why_card import print_card

        print_card(shown, result_console(), marker)
        for line in ("", "Members", *(f"  {line}" for line, _ in members)) if members else ():
            result_console().print(line, markup=False, highlight=False, soft_wrap=True)
    if args.html is not None:
        progress_console().print(f"timeline: {args.html}", markup=False, soft_wrap=True)
    from draftmark.report.why_words import is_unsettled

    return UNSETTLED if is_unsettled(verdict) else 0


def _write_page(page: Path, text: str) -> None:
    """Whole or not at all: written beside its place, then moved there."""
    beside = page.with_name(f".{page.name[:100]}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(page)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BadInputError(
            f"{page} cannot be written: {error.strerror}", next_step="name a file in a folder where you may write"
        ) from error


def _write(text: str) -> None:
    if sys.stdout is None:
        raise BadInputError("stdout is closed, so the verdict has nowhere to go", next_step="leave stdout open")
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _explain(args: argparse.Namespace) -> int:
    if args.things:
        raise UsageError(
            "--explain examines nothing", evidence=tuple(args.things), next_step="leave out what is to be examined"
        )
    from draftmark.report.why_explain import print_causes, print_explanation

    tables = compose_why.tables()
    if args.explain == "list":
        print_causes(tables.causes, result_console())
    else:
        print_explanation(args.explain, tables, result_console())
    return 0


def _check(question: Asked, args: argparse.Namespace) -> None:
    """Whether there is something to read, and a place for what is to be written."""
    if question.service is None and not question.paths:
        piped = sys.stdin is not None and not sys.stdin.isatty()
        raise UsageError(
            "nothing to examine was named" + (", and stdin is read only when it is asked for" if piped else ""),
            next_step="draftmark why -" if piped else f"name a service ({FORMS}), or files",
        )
    _check_runs(question.paths)
    if question.members:
        _check_members(question, args)
    if hosts.is_remote(args) and question.service is None:
        raise UsageError(
            "--host is for services; files are read here", evidence=question.paths[:3], next_step="leave --host out"
        )
    if args.since is not None and question.service is None:
        raise UsageError("--since is for services; files are read whole", next_step="leave --since out")
    if args.since is not None and not _WHEN.fullmatch(args.since.strip()):
        raise UsageError(
            f"--since {args.since!r} is no time",
            next_step='--since "2026-11-29 17:50", --since yesterday, --since "2 hours ago"',
        )
    if question.paths.count(STDIN) > 1:
        raise UsageError("stdin can be read only once", next_step="give - once")
    if STDIN in question.paths and sys.stdin is None:
        raise BadInputError("stdin is closed, so there is nothing to examine", next_step="leave stdin open")
    if args.html is not None:
        _check_place(args.html, question.paths)


def _check_runs(paths: Sequence[str]) -> None:
    """A run of Draftmark's is a server a trial: one verdict over them all would be of none.

    Raises:
        UsageError: A run directory, with its trials.
    """
    for path in map(Path, paths):
        if not (path / "run.json").is_file() or not (path / "trials").is_dir():
            continue
        trials = sorted(each for each in (path / "trials").iterdir() if (each / "server.log").is_file())
        if not trials:
            continue
        raise UsageError(
            f"{path} is a run of Draftmark's: a server for each of its {len(trials)} trials",
            evidence=tuple(str(each) for each in trials[:20]),
            next_step=f"ask about one of them: draftmark why {trials[-1] / 'server.log'}; those that died have "
            "their cause in the run's report",
        )


def _check_members(question: Asked, args: argparse.Namespace) -> None:
    """Whether the options go with a name of draftmark.toml."""
    first = question.members[0]
    if hosts.is_remote(args):
        raise UsageError(
            "draftmark.toml says on which host that is",
            evidence=(f"--host {args.host}",),
            next_step="leave --host out, or name unit:NAME",
        )
    if len(question.members) > 1 and (question.paths or args.service):
        raise UsageError(
            "files and --service go with one unit, and that is a service of several",
            evidence=tuple(map(str, question.members)),
            next_step=f"name one of them: draftmark why {first} …",
        )


_WHEN = re.compile(
    r"(?i)today|yesterday|now|@\d{1,12}|"
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?: ?(?:UTC|Z|[+-]\d\d:?\d\d))?|"
    r"\d\d:\d\d(?::\d\d)?|-?\d{1,6} ?(?:s|m|h|d|w|sec\w*|min\w*|hours?|days?|weeks?|months?)(?: ago)?"
)
"""What systemd and Docker both take, or one of them does."""


def _check_place(page: Path, read: Sequence[str]) -> None:
    """Whether a page can be written there: to be told before a long read."""
    because = "it is a folder" if page.is_dir() else "" if page.parent.is_dir() else "its folder does not exist"
    if not because and not os.access(page.parent, os.W_OK):
        because = "you may not write in its folder"
    if not because and any(path != STDIN and _same_file(path, page) for path in read):
        because = "it is one of the files to be examined"
    if not because and page.is_file() and page.stat().st_size and not _is_page(page):
        because = "it exists, and is no page"
    if because:
        raise BadInputError(f"{page} cannot be written: {because}", next_step="name another file for the page")


def _same_file(path: str, page: Path) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).samefile(page)
    return False


def _is_page(page: Path) -> bool:
    with contextlib.suppress(OSError), page.open("rb") as file:
        return file.read(100).lstrip().lower().startswith(b"<!doctype html")
    return False


def _runs(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST_RUNS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MOST_RUNS}")
    return int(text)
