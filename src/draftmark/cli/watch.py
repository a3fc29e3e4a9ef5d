"""`draftmark watch`: a post-mortem is written whenever a unit fails."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmark.cli.output import print_json
from draftmark.errors import UsageError
from draftmark.model import ServiceKind
from draftmark.service.reference import parse_reference
from draftmark.service.watch import notify
from draftmark.service.watch.install import Status, Wanted, install, remove, report_names, status
from draftmark.service.watch.places import KEEP

if TYPE_CHECKING:
    from draftmark.ports import Host

_MOST = 10_000
_SHOWN = 5

_ABOUT = """\
Writes a post-mortem (Markdown, JSON, HTML) whenever a systemd unit fails, and tells a webhook.

  draftmark watch install unit:sglang-qwen.service
  draftmark watch install unit:llm --keep 50 --webhook https://hooks.slack.com/services/… --webhook-format slack
  draftmark watch status  unit:llm
  draftmark watch remove  unit:llm

`install` adds one drop-in to the unit, zz-draftmark-watch.conf, and two unit files that all watched units share,
draftmark-watch@.service and draftmark-watch-started@.service. No file of yours is changed, and the unit is not
restarted. `remove` leaves nothing. Secrets are hidden in reports.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = _ABOUT
    actions = parser.add_subparsers(dest="action", metavar="install|remove|status", required=True)
    adding = actions.add_parser("install", help="watch a unit, or change how it is watched")
    _service(adding)
    adding.add_argument("--webhook", metavar="URL", help="told of each post-mortem; - reads the URL from stdin")
    adding.add_argument(
        "--webhook-format",
        choices=notify.FORMATS,
        default="json",
        help="what the webhook understands (default json)",
    )
    adding.add_argument(
        "--dir", metavar="DIR", help="reports go to DIR/UNIT (default /var/lib/draftmark/watch/UNIT)"
    )
    adding.add_argument(
        "--keep", type=_keep, default=KEEP, metavar="N", help=f"newest reports kept (default {KEEP})"
    )
    adding.add_argument("--python", metavar="PATH", help="interpreter that writes the reports (default: this one)")
    removing = actions.add_parser("remove", help="take everything away that install brought, reports included")
    _service(removing)
    removing.add_argument("--keep-reports", action="store_true", help="leave the reports where they are")
    _service(actions.add_parser("status", help="whether a unit is watched, and the last reports"))
    running = actions.add_parser("run")  # what the unit file calls
    running.add_argument("unit")
    running.add_argument("--user", action="store_true")


def _service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("service", metavar="unit:NAME", help="a systemd service, of the system or your own")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """Do it, and say what there is now."""
    if args.action == "run":
        from draftmark.cli.watch_run import watch

        return watch(args.unit, user=args.user)
    name = _unit(args.service)
    document = {"install": _install, "remove": _remove, "status": _status}[args.action](_host(), name, args)
    if args.json:
        print_json(document)
    else:
        _say(document)
    return 0


def _host() -> Host:
    from draftmark.service.local import LocalHost

    return LocalHost()


def _unit(reference: str) -> str:
    found = parse_reference(reference)
    if found.kind is not ServiceKind.UNIT:
        raise UsageError(
            f"a {found.kind}: service has nobody who would call: watch is for systemd units",
            evidence=(reference,),
            next_step="draftmark watch install unit:NAME",
        )
    return found.target


def _install(host: Host, name: str, args: argparse.Namespace) -> dict[str, Any]:
    webhook = sys.stdin.readline().strip() if args.webhook == "-" and sys.stdin is not None else args.webhook
    wanted = Wanted(
        reports=str(Path(args.dir).absolute()) if args.dir else None,
        keep=args.keep,
        webhook=notify.check_url(webhook) if webhook is not None else None,
        form=args.webhook_format,
    )
    return _document(host, "install", install(host, name, wanted, python=args.python or sys.executable))


def _remove(host: Host, name: str, args: argparse.Namespace) -> dict[str, Any]:
    before = remove(host, name, keep_reports=args.keep_reports)
    removed = before is not None
    return {**_document(host, "remove", status(host, name) if before is None else before), "removed": removed}


def _status(host: Host, name: str, _args: argparse.Namespace) -> dict[str, Any]:
    return _document(host, "status", status(host, name))


def _document(host: Host, action: str, found: Status) -> dict[str, Any]:
    settings, places, unit = found.settings, found.watched.places, found.watched.unit
    names = report_names(host, settings.reports) if settings else []
    return {
        "schema": "draftmark.watch/1",
        "action": action,
        "unit": unit,
        "host": host.name,
        "manager": "user" if places.user else "system",
        "installed": found.installed,
        "effective": found.effective,
        "missing": list(found.missing),
        "drop_in": places.drop_in(unit),
        "unit_files": list(places.templates),
        "reports": settings.reports if settings else None,
        "keep": settings.keep if settings else None,
        "webhook": notify.shown(settings.webhook) if settings and settings.webhook else None,
        "webhook_format": settings.form if settings and settings.webhook else None,
        "last": names[::-1],
    }


def _say(document: dict[str, Any]) -> None:
    from draftmark.cli.output import result_console

    console = result_console()
    for line in _lines(document):
        console.print(line, markup=False, soft_wrap=True)


def _lines(document: dict[str, Any]) -> list[str]:
    unit = document["unit"]
    if document["action"] == "remove":
        if not document["removed"]:
            return [f"{unit} is not watched: there was nothing to remove"]
        return [f"{unit} is no longer watched; nothing of it is left"]
    if not document["installed"] and not document["missing"]:
        return [f"{unit} is not watched", f"  next: draftmark watch install unit:{unit}"]
    whole = document["effective"] and not document["missing"]
    lines = [f"{unit} is watched" if whole else f"{unit} is watched in part only"]
    lines += [f"  missing  {each}" for each in document["missing"]]
    if not document["effective"]:
        lines.append(f"  systemd does not call: draftmark watch install unit:{unit} puts it right")
    kept = f"{document['reports']}, the newest {document['keep']}" if document["reports"] else "root knows where"
    lines += [f"  drop-in  {document['drop_in']}", f"  reports  {kept}"]
    if document["webhook"]:
        lines.append(f"  webhook  {document['webhook']} ({document['webhook_format']})")
    lines += [f"           {name}" for name in document["last"][:_SHOWN]]
    if document["action"] == "install":
        lines.append(f"  to undo  draftmark watch remove unit:{unit}")
    return lines


def _keep(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MOST}")
    return int(text)
