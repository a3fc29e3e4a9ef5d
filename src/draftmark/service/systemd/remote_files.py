"""Files on a host, written so that a reader sees the old content or the new, and never a part."""

from __future__ import annotations

from collections.abc import Iterable

from draftmark.errors import FailedError
from draftmark.ports import Host

_WRITE = """\
umask 077
trap 'rm -f -- "$0.new"' EXIT
cat >"$0.new" && chmod -- "$1" "$0.new" && sync "$0.new" && mv -f -- "$0.new" "$0" || exit 1
sync -- "${0%/*}" 2>/dev/null
exit 0
"""


def write_file(host: Host, path: str, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole, or leave it as it was; a link there is replaced.

    Args:
        host: Where.
        path: Absolute; its folder exists.
        content: Its bytes.
        mode: Its permissions.

    Raises:
        FailedError: It could not be written: no such folder, no permission, disk full.
        HostError: The host itself cannot be reached any more.
    """
    ended = host.run(["sh", "-c", _WRITE, path, f"{mode:o}"], input=content, timeout_s=60.0)
    if not ended.ok:
        raise FailedError(
            f"{path} on {host.name} could not be written, and is as it was",
            evidence=tuple(ended.stderr.splitlines()) or (f"exit status {ended.status}",),
        )


def read_files(host: Host, paths: Iterable[str]) -> dict[str, bytes | None]:
    """The content of files, by path; None for what is not there or cannot be read."""
    found: dict[str, bytes | None] = {}
    for path in paths:
        try:
            found[path] = host.read(path)
        except OSError:
            found[path] = None
    return found
