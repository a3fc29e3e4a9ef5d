"""The log of a start that `fit` may calibrate from: a file of any size, or what a unit's run has written."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from draftmark.engines.sglang.log.last_start import LastStart, last_start, to_ready
from draftmark.errors import BadInputError
from draftmark.ports import Host

if TYPE_CHECKING:
    from draftmark.cli.unit_target import MemberUnit
    from draftmark.service.systemd.discover import FoundUnit

_BLOCK = 1 << 20
_UNIT_S = 30.0
_UNIT_BYTES = 64 << 20
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")


@dataclass(frozen=True, slots=True)
class BootLog:
    """A start's lines, as `ports.FitScene` has them.

    Attributes:
        name: As people call it.
        remarks: What there is to say of it.
    """

    name: str
    found: LastStart
    remarks: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        """Whether memory can be told from it."""
        return self.found.told

    def lines(self) -> Iterator[str]:
        """With their ends."""
        return self.found.lines()


def boot_log_of(path: Path) -> BootLog:
    """The last start in a file, packed or not; `-` is stdin.

    Raises:
        BadInputError: It cannot be read.
    """
    shown = str(path)
    remarks: list[str] = []
    try:
        with ExitStack() as stack:
            file = sys.stdin.buffer if shown == "-" else stack.enter_context(path.open("rb"))
            found = last_start(_blocks(file, shown, remarks))
    except OSError as error:
        raise BadInputError(
            f"the log cannot be read: {error.strerror or error}", evidence=(shown,), next_step="check --log"
        ) from None
    if found.passed_over:
        which = "start says" if found.passed_over == 1 else f"{found.passed_over} starts say"
        remarks.append(f"the log's last {which} nothing of memory: the one before is taken")
    return BootLog("stdin" if shown == "-" else shown, found, tuple(remarks))


def _blocks(file: BinaryIO, shown: str, remarks: list[str]) -> Iterator[bytes]:
    head = file.read(512)
    if head.startswith(_WIDE):
        yield from _narrowed(head, file)
        return
    if not head.startswith(_PACKED):
        yield head
        while block := file.read(_BLOCK):
            yield block
        return
    from draftmark.postmortem.intake import streams
    from draftmark.postmortem.intake.limits import Limits

    if head.startswith(streams.ZIP):
        raise BadInputError("the log is in an archive", evidence=(shown,), next_step="unpack it: unzip FILE")
    packed = streams.Peeked(_Ahead(head, file))
    try:
        unpack = streams.packing(packed.head)
    except streams.MissingCodecError as missing:
        raise BadInputError(
            "the log is compressed, and no library here unpacks it",
            evidence=(shown,),
            next_step=f"{missing.command} {shown} | draftmark fit … --log -",
        ) from None
    if unpack is None:
        raise BadInputError("the log is no text", evidence=(shown,), next_step="check --log")
    content = streams.Unpacked(unpack(packed), lambda: packed.given, streams.Allowance(Limits()))
    while block := content.read():
        if streams.is_tar(block):
            raise BadInputError("the log is in an archive", evidence=(shown,), next_step="unpack it: tar -xf FILE")
        yield block
    if content.note:
        remarks.append(f"the log is {content.note}")


def _narrowed(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    """UTF-16, as PowerShell writes what it redirects, in UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    block = head
    while block:
        yield decoder.decode(block).encode("utf-8", "replace")
        block = file.read(_BLOCK)
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


class _Ahead:
    """A file of which some was read already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head = head
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        taken = self._head if size < 0 else self._head[:size]
        self._head = self._head[len(taken) :]
        return taken + (self._file.read(size - len(taken) if size >= 0 else -1))


def boot_log_of_unit(member: MemberUnit) -> BootLog | None:
    """How a unit's present run started, or its last one: by its journal, or the files that it writes to instead.

    None where that cannot be seen, or is gone. No more is read than up to where the server is ready.

    Raises:
        HostError: The host cannot be reached any more.
    """
    hosts = [member.host] if member.privileged is member.host else [member.host, member.privileged]
    for argv, name in _places(member.unit):
        for host in hosts:
            found = _read(host, argv)
            if found.told:
                since = f", start of {found.time}" if found.time else ""
                return BootLog(f"{name}{since}", found)
    return None


def _places(unit: FoundUnit) -> Iterator[tuple[tuple[str, ...], str]]:
    """Commands that print a start of the unit."""
    for path, emptied in unit.output_files.items():
        yield ("head" if emptied else "tail", "-c", str(_UNIT_BYTES), "--", path), path
    journal, name = ("journalctl", "--no-pager", "--quiet", "--output=cat"), f"journal of {unit.name}"
    if unit.manager.user:  # its lines carry the invocation of the user's manager
        started = unit.properties.get("ExecMainStartTimestamp", "")
        if started:
            yield (*journal, f"--since={started}", f"--user-unit={unit.name}"), name
    elif invocation := unit.properties.get("InvocationID", ""):
        yield (*journal, f"_SYSTEMD_INVOCATION_ID={invocation}"), name


def _read(host: Host, argv: tuple[str, ...]) -> LastStart:
    stream = host.stream(argv, timeout_s=_UNIT_S)
    try:
        blocks = to_ready(stream, _UNIT_BYTES) if argv[0] != "tail" else iter(stream)
        return last_start(blocks)
    finally:
        stream.close()
