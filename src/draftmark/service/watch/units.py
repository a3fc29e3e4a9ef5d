"""The unit files of a watch, as text. Pure.

Three things start the watcher, for no single one sees every death (tried on systemd 252):

- `OnFailure=` is not acted on when `Restart=` starts the unit again, nor when a restart hides the failure;
- `ExecStopPost=` is run after every end, but in the unit's own surroundings: without its working directory, user
  or environment file there is no hook either;
- `Wants=` is acted on at each start of the unit, automatic ones included: what the other two missed is then found
  in the journal. It goes by way of a unit of its own: what systemd is asked to start that is just starting is not
  started once more, and `OnFailure=` would have called in vain.

What one of them has reported, the others do not report again: a death is known by its invocation id.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

DROP_IN = "zz-draftmark-watch.conf"
TEMPLATE = "draftmark-watch@.service"
STARTED = "draftmark-watch-started@.service"
SPOOL = "draftmark-watch"
"""Folder below the manager's runtime directory: a folder a unit, in it a file a death that waits for its report."""

_MARK = "# Draftmark: "
_LONGEST_NAME = 255

# $1 is the folder for this unit's deaths, $2 the unit. Whatever fails here must not trouble the unit's own stop.
_HOOK = (
    'case "$$SERVICE_RESULT" in success|exec-condition) exit 0;; esac; umask 077; '
    'mkdir -p "$$1" && echo "$$SERVICE_RESULT $$EXIT_CODE $$EXIT_STATUS" >"$$1/$$INVOCATION_ID"; '
    'exec "$$3" {scope}start --no-block "draftmark-watch@$$2.service"'
)
# A unit that was not restarted by itself has no failure behind it that is not known.
_STARTED = (
    '[ "$$("$$3" {scope}show -P NRestarts -- "$$2")" = 0 ] || '
    'exec "$$3" {scope}start --no-block "draftmark-watch@$$2.service"'
)
# A death during the watcher's last moments: its start was merged into the run that did not see it any more. Only
# after a run that worked, so that a broken one is not started over and over.
_AGAIN = (
    'case "$$EXIT_STATUS" in 0|50) ;; *) exit 0;; esac; '
    '[ -z "$$(ls -A "$$1" 2>/dev/null)" ] || exec "$$3" {scope}start --no-block "draftmark-watch@$$2.service"'
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Absolute paths on the unit's host."""

    python: str
    systemctl: str
    sh: str = "/bin/sh"


def instance(unit: str) -> str:
    """Name of the watcher of a unit."""
    return f"draftmark-watch@{unit}.service"


def slices(*, user: bool) -> tuple[str, ...]:
    """Where systemd puts the instances of both templates, by their names."""
    stems = (name.partition("@")[0].replace("-", r"\x2d") for name in (TEMPLATE, STARTED))
    return tuple(f"{'app' if user else 'system'}-{stem}.slice" for stem in stems)


def fits(unit: str) -> bool:
    """Whether the watcher's name is not too long for systemd."""
    return len(STARTED) + len(unit) <= _LONGEST_NAME


def is_ours(text: str) -> bool:
    """Whether a unit file is one of these."""
    return text.startswith(_MARK)


def drop_in(unit: str, programs: Programs, *, user: bool) -> str:
    """What makes the unit's failures known. It adds to the unit's settings and replaces none."""
    hook = _line(programs, _HOOK, "%t/" + SPOOL + "/%n", "%n", user=user)
    return (
        f"{_MARK}whenever this unit fails, a post-mortem is written.\n"
        f"# To undo it: draftmark watch remove unit:{unit}\n"
        "[Unit]\n"
        "OnFailure=draftmark-watch@%n.service\n"
        "Wants=draftmark-watch-started@%n.service\n"
        "\n"
        "[Service]\n"
        f"ExecStopPost=-+{hook}\n"
    )


def template(programs: Programs, *, user: bool) -> str:
    """The watcher, for all units. It has no OnFailure= of its own: it never watches itself."""
    spool = "%t/" + SPOOL + "/%i"
    words = [programs.python, "-P", "-m", "draftmark", "watch", "run", *(["--user"] if user else [])]
    return (
        f"{_MARK}writes the post-mortem of a unit that failed.\n"
        "# Made by `draftmark watch install`; it goes with the last `draftmark watch remove`.\n"
        "[Unit]\n"
        "Description=Post-mortem of %i by Draftmark\n"
        "CollectMode=inactive-or-failed\n"
        "StartLimitIntervalSec=60\n"
        "StartLimitBurst=30\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart={' '.join(map(_quoted, words))} %i\n"
        f"ExecStopPost=-{_line(programs, _AGAIN, spool, '%i', user=user)}\n"
    )


def started(programs: Programs, *, user: bool) -> str:
    """What a start of the unit calls."""
    return (
        f"{_MARK}calls the watcher of a unit that systemd has started again after a failure.\n"
        "# Made by `draftmark watch install`; it goes with the last `draftmark watch remove`.\n"
        "[Unit]\n"
        "Description=Restarts of %i, for Draftmark\n"
        "CollectMode=inactive-or-failed\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart=-{_line(programs, _STARTED, '-', '%i', user=user)}\n"
    )


def _line(programs: Programs, script: str, spool: str, unit: str, *, user: bool) -> str:
    """A shell command for a unit file. Names are arguments of their own: a shell would take their backslashes."""
    text = script.format(scope="--user " if user else "")
    return f"{_quoted(programs.sh)} -c {_in_quotes(text)} sh {spool} {unit} {_quoted(programs.systemctl)}"


def _in_quotes(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(word: str) -> str:
    """A word as systemd reads it back: specifiers and variables are doubled."""
    escaped = word.replace("%", "%%").replace("$", "$$")
    return escaped if shlex.quote(escaped) == escaped else _in_quotes(escaped)
