"""What the watcher is run with on the unit's host: an interpreter that has Draftmark, and systemctl."""

from __future__ import annotations

from draftmark.errors import RefusedError
from draftmark.ports import Host
from draftmark.service.watch.places import reason

# Who may have Draftmark: the program on PATH or where pip puts a user's, the usual python3, the place we advise.
_PYTHONS = (
    'for f in "$(command -v draftmark)" "$HOME/.local/bin/draftmark"; do '
    '[ -r "$f" ] && sed -n "1s/^#! *//p" "$f"; done; command -v python3; echo "$1"; :'
)
_ADVISED = "/opt/draftmark"


def systemctl_path(host: Host) -> str:
    """Absolute path of systemctl there."""
    found = host.run(("sh", "-c", "command -v systemctl"))
    path = found.stdout.decode("utf-8", "replace").strip()
    return path if found.ok and path.startswith("/") else "/usr/bin/systemctl"


def candidate_pythons(host: Host) -> list[str]:
    """Interpreters that may have Draftmark, the likeliest first."""
    asked = host.run(("sh", "-c", _PYTHONS, "sh", f"{_ADVISED}/bin/python"))
    return list(dict.fromkeys(asked.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1]))


def usable_python(host: Host, pythons: list[str]) -> str:
    """The first that has this verb, run as the watcher will run it: with next to no environment.

    Raises:
        RefusedError: None has.
    """
    bare = ("env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    because = []
    for python in pythons:
        said = host.run((*bare, python, "-P", "-m", "draftmark", "watch", "run", "--help"), timeout_s=60.0)
        if python.startswith("/") and said.ok and b"draftmark watch run" in said.stdout:
            return python
        because.append(f"{python}: {reason(said)}")
    raise RefusedError(
        f"no Draftmark is installed on {host.name} that could write the post-mortem there; nothing was changed",
        evidence=tuple(because),
        next_step=f"on {host.name}, as root, in a copy of Draftmark: python3 -m venv {_ADVISED} && "
        f"{_ADVISED}/bin/pip install . — then the same again; or name an interpreter that has it: --python PATH",
    )
