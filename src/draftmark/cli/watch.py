"""`draftmark watch`: a post-mortem is written whenever a unit fails."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from draftmark.cli import hosts, services
from draftmark.cli.output import print_json
from draftmark.errors import UsageError
from draftmark.model import ServiceRef
from draftmark.service.watch import notify
from draftmark.service.watch.install import Status, Wanted, install, remove, status
from draftmark.service.watch.places import KEEP, SETTINGS

SCHEMA = "draftmark.watch/1"
_MOST = 10_000
_SHOWN = 5

_ABOUT = """\
Writes a post-mortem (Markdown, JSON, HTML) whenever a systemd unit fails, and tells a webhook.

  draftmark watch install unit:sglang-qwen.service
  draftmark watch install unit:llm --keep 50 --webhook https://hooks.slack.com/services/… --webhook-format slack
  draftmark watch status  unit:llm
  draftmark watch remove  unit:llm
  draftmark watch install unit:llm --host root@gpu1
  draftmark watch install qwen                    by its name in draftmark.toml: each of its units

`install` adds one drop-in to the unit, zz-draftmark-watch.conf, and two unit files that all watched units share,
draftmark-watch@.service and draftmark-watch-started@.service. No file of yours is changed, and the unit is not
restarted. `remove` leaves nothing. Secrets are hidden in reports. A unit that fails over and over has 3 reports a
minute and 10 an hour at most. The post-mortem is written on the unit's own host: Draftmark must be installed there.
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
    adding.add_argument(
        "--python",
        metavar="PATH",
        help="interpreter that writes the reports, on the unit's host (default: this one; over SSH, one that has "
        "Draftmark)",
    )
    removing = actions.add_parser("remove", help="take everything away that install brought, reports included")
    _service(removing)
    removing.add_argument("--keep-reports", action="store_true", help="leave the reports where they are")
    _service(actions.add_parser("status", help="whether a unit is watched, and the last reports"))
    running = actions.add_parser("run")  # what the unit file calls
    running.add_argument("unit")
    running.add_argument("--user", action="store_true")


def _service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "service",
        metavar="SERVICE",
        help="unit:NAME, of the system or your own, or a name of draftmark.toml",
    )
    hosts.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(args: argparse.Namespace) -> int:
    """Do it, and say what there is now."""
    if args.action == "run":
        from draftmark.cli.watch_run import watch

        return watch(args.unit, user=args.user)
    members = services.units(args, _refused)
    if args.action == "install" and args.webhook == "-" and sys.stdin is not None:
        args.webhook = sys.stdin.readline().strip()  # once, for all members
    act = {"install": _install, "remove": _remove, "status": _status}[args.action]

    def tell(document: dict[str, Any]) -> None:
        if not args.json:
            _say(document)

    documents = services.for_each(members, lambda member: act(member, args), tell)
    if args.json:
        print_json(documents[0] if len(documents) == 1 else _several(args, documents))
    return 0


def _several(args: argparse.Namespace, documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schema": SCHEMA, "action": args.action, "service": args.service, "members": documents}


def _refused(reference: ServiceRef) -> UsageError:
    return UsageError(
        f"a {reference.kind}: service has nobody who would call: watch is for systemd units",
        evidence=(str(reference),),
        next_step="draftmark watch install unit:NAME",
    )


def _install(member: services.Member, args: argparse.Namespace) -> dict[str, Any]:
    remote = member.host is not None
    wanted = Wanted(
        reports=_folder(args.dir, remote) if args.dir else None,
        keep=args.keep,
        webhook=notify.check_url(args.webhook) if args.webhook is not None else None,
        form=args.webhook_format,
    )
    python = args.python or (None if remote else sys.executable)
    return _document(member, "install", install(hosts.host_at(member.host), member.unit, wanted, python=python))


def _folder(path: str, remote: bool) -> str:
    if remote and not path.startswith("/"):
        raise UsageError(f"--dir {path} is on the unit's host, where there is no current folder: begin it with /")
    return str(Path(path).absolute())


def _remove(member: services.Member, args: argparse.Namespace) -> dict[str, Any]:
    host = hosts.host_at(member.host)
    before = remove(host, member.unit, keep_reports=args.keep_reports)
    removed = before is not None
    found = status(host, member.unit) if before is None else before
    return {**_document(member, "remove", found), "removed": removed}


def _status(member: services.Member, args: argparse.Namespace) -> dict[str, Any]:
    del args
    return _document(member, "status", status(hosts.host_at(member.host), member.unit))


def _document(member: services.Member, action: str, found: Status) -> dict[str, Any]:
    settings, places, unit = found.settings, found.watched.places, found.watched.unit
    return {
        "schema": SCHEMA,
        "action": action,
        "unit": unit,
        "host": hosts.host_at(member.host).name,
        "asked": str(services.Member(unit, member.host)),
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
        "last": list(found.reports[::-1]),
    }


def _say(document: dict[str, Any]) -> None:
    from draftmark.cli.output import result_console

    console = result_console()
    for line in _lines(document):
        console.print(line, markup=False, soft_wrap=True)


def _lines(document: dict[str, Any]) -> list[str]:
    unit, asked = document["unit"], document["asked"]
    if document["action"] == "remove":
        if not document["removed"]:
            return [f"{unit} is not watched: there was nothing to remove"]
        return [f"{unit} is no longer watched; nothing of it is left"]
    if not document["installed"] and not document["missing"]:
        return [f"{unit} is not watched", f"  next: draftmark watch install {asked}"]
    whole = document["effective"] and not document["missing"]
    lines = [f"{unit} is watched" if whole else f"{unit} is watched in part only"]
    lines += [f"  missing  {each}" for each in document["missing"]]
    if not whole:
        what = "what is missing" if document["effective"] else "systemd does not call"
        lines.append(f"  {what}: draftmark watch install {asked} puts it right")
    lines += [f"  drop-in  {document['drop_in']}", f"  reports  {_kept(document)}"]
    if document["webhook"]:
        lines.append(f"  webhook  {document['webhook']} ({document['webhook_format']})")
    lines += [f"           {name}" for name in document["last"][:_SHOWN]]
    if document["action"] == "install":
        lines.append(f"  to undo  draftmark watch remove {asked}")
    return lines


def _kept(document: dict[str, Any]) -> str:
    """Where the reports are."""
    if document["reports"]:
        return f"{document['reports']}, the newest {document['keep']}"
    gone = any(path.endswith(f"/{SETTINGS}") for path in document["missing"])
    return "not known: what was installed is not on record any more" if gone else "root knows where"


def _keep(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {_MOST}")
    return int(text)
