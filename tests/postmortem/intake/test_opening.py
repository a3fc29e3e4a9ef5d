"""Files, folders, archives, and everything that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import socket
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from backports import zstd

from draftmark.errors import BadInputError
from draftmark.postmortem.intake import Hints, Limits, read_paths
from draftmark.postmortem.model import Kind

NONE = Hints()
LOG = b"[2026-03-02 10:00:00 TP0] one\n[2026-03-02 10:00:01 TP0] two\n"


def names(*paths: Path | str) -> list[str]:
    return [source.name for source in read_paths([str(path) for path in paths], hints=NONE).sources]


def texts(*paths: Path | str) -> list[str]:
    return [
        line.text for source in read_paths([str(p) for p in paths], hints=NONE).sources for line in source.lines
    ]


def tar_of(path: Path, members: dict[str, bytes], mode: str) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_a_file_with_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "service.log"
    path.write_bytes(LOG)
    (source,) = read_paths([str(path)], hints=NONE).sources
    assert (source.name, source.kind, source.total_lines, source.size_bytes) == (str(path), Kind.LOG, 2, len(LOG))
    assert [(line.number, line.text, line.actor) for line in source.lines] == [(1, "one", "TP0"), (2, "two", "TP0")]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("name", ["service.log.gz", "no-name-that-says-so"])
def test_compressed_files_are_told_by_their_content(tmp_path: Path, pack: object, name: str) -> None:
    (tmp_path / name).write_bytes(pack(LOG))  # type: ignore[operator]
    assert texts(tmp_path / name) == ["one", "two"]


def test_several_gzip_streams_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(LOG) + gzip.compress(b"three\n"))
    assert texts(tmp_path / "a.gz") == ["one", "two", "three"]


def test_zstandard_or_the_command_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "b.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    for library in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, library, None)
    (unread,) = read_paths([str(tmp_path)], hints=NONE).unread
    assert unread.command == f"zstd -dc {tmp_path / 'b.zst'}"


def test_zstandard_frames_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "b.zst").write_bytes(zstd.compress(LOG) + zstd.compress(b"three\n"))
    assert texts(tmp_path / "b.zst") == ["one", "two", "three"]


def test_a_zstandard_file_that_was_cut_off_gives_what_there_is(tmp_path: Path) -> None:
    lines = b"".join(b"[2026-03-02 10:00:00 TP0] line %d %x\n" % (n, hash(str(n))) for n in range(50_000))
    whole = zstd.compress(lines)
    (tmp_path / "b.zst").write_bytes(whole[: len(whole) // 2])
    (source,) = read_paths([str(tmp_path / "b.zst")], hints=NONE).sources
    assert source.lines[0].text.startswith("line 0 ")
    assert "cut off" in source.notes[0]


def test_a_gzip_that_was_cut_off_gives_what_there_is(tmp_path: Path) -> None:
    lines = b"".join(b"[2026-03-02 10:00:00 TP0] line %d %x\n" % (n, hash(str(n))) for n in range(20_000))
    whole = gzip.compress(lines)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    (source,) = read_paths([str(tmp_path / "a.gz")], hints=NONE).sources
    assert source.lines[0].text.startswith("line 0 ")
    assert source.total_lines > 1000
    assert "cut off" in source.notes[0]
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 64] = b"\xff" * 64
    (tmp_path / "b.gz").write_bytes(damaged)
    (source,) = read_paths([str(tmp_path / "b.gz")], hints=NONE).sources
    assert source.lines[0].text.startswith("line 0 ")
    assert source.notes


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_members_of_an_archive_one_level_deep(tmp_path: Path, mode: str) -> None:
    members = {
        "./node1/service.log": LOG,
        "node2/service.log.1.gz": gzip.compress(b"old\n"),
        "node2/service.log": b"new\n",
    }
    path = tar_of(tmp_path / "logs.tar", members, mode)
    assert names(path) == [
        f"{path}:node1/service.log",
        f"{path}:node2/service.log.1.gz",
        f"{path}:node2/service.log",
    ]
    assert texts(path) == ["one", "two", "old", "new"]


def test_only_what_a_pager_opens_comes_with_a_pager(tmp_path: Path) -> None:
    plain = tmp_path / "my service.log"
    plain.write_bytes(LOG)
    packed = tmp_path / "old.gz"
    packed.write_bytes(gzip.compress(LOG))
    archive = tar_of(tmp_path / "logs.tar", {"a.log": LOG}, "w")
    found = read_paths([str(plain), str(packed), str(archive), "-"], hints=NONE, stdin=io.BytesIO(LOG)).sources
    commands = {source.name.removeprefix(f"{tmp_path}/"): source.command for source in found}
    assert commands == {"my service.log": f"less '{plain}'", "old.gz": "", "logs.tar:a.log": "", "stdin": ""}


def test_an_archive_in_an_archive_is_named(tmp_path: Path) -> None:
    inner = tar_of(tmp_path / "inner.tar", {"a.log": LOG}, "w").read_bytes()
    path = tar_of(tmp_path / "outer.tar.gz", {"b.log": LOG, "inner.tar": inner}, "w:gz")
    intake = read_paths([str(path)], hints=NONE)
    assert [source.name for source in intake.sources] == [f"{path}:b.log"]
    (unread,) = intake.unread
    assert unread.because == "an archive inside an archive"


def test_a_zip_as_file_and_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/service.log", LOG)
        archive.writestr("b.gz", gzip.compress(b"three\n"))
    assert texts(path) == ["one", "two", "three"]
    (first, second) = read_paths(["-"], hints=NONE, stdin=io.BytesIO(path.read_bytes())).sources
    assert (first.name, second.name) == ("stdin:a/service.log", "stdin:b.gz")


def test_an_archive_that_was_cut_off_gives_its_first_members(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "logs.tar", {"a.log": LOG, "b.log": LOG * 5000}, "w")
    path.write_bytes(path.read_bytes()[:4096])
    intake = read_paths([str(path)], hints=NONE)
    assert intake.sources[0].name == f"{path}:a.log"
    assert intake.unread or intake.sources[-1].notes


def test_a_bomb_is_not_unpacked_for_ever(tmp_path: Path) -> None:
    limits = Limits(ratio_from_bytes=1 << 20)
    bomb = gzip.compress(b"0" * (20 << 20))
    (tmp_path / "a.gz").write_bytes(bomb)
    (source,) = read_paths([str(tmp_path / "a.gz")], hints=NONE, limits=limits).sources
    assert source.size_bytes < 4 << 20
    assert "unpack to more than" in source.notes[0]
    path = tar_of(tmp_path / "b.tar", {f"{n}.gz": bomb for n in range(5)}, "w")
    few = Limits(unpacked_bytes=8 << 20)
    sources = read_paths([str(path)], hints=NONE, limits=few).sources
    assert sum(source.size_bytes for source in sources) < 16 << 20


def test_no_more_members_than_allowed(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "many.tar", {f"{n:03}.log": LOG for n in range(50)}, "w")
    intake = read_paths([str(path)], hints=NONE, limits=Limits(members=10))
    assert len(intake.sources) == 10
    assert "more than 10 members" in intake.unread[0].because
    folder = tmp_path / "many"
    folder.mkdir()
    for n in range(50):
        (folder / f"{n}.log").write_bytes(LOG)
    intake = read_paths([str(folder)], hints=NONE, limits=Limits(members=10))
    assert len(intake.sources) == 10
    assert "more than 10 files" in intake.unread[0].because


def test_standard_input() -> None:
    (source,) = read_paths(["-"], hints=NONE, stdin=io.BytesIO(gzip.compress(LOG))).sources
    assert (source.name, [line.text for line in source.lines]) == ("stdin", ["one", "two"])


def test_a_folder_with_hidden_files_links_and_things_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "b.log").write_bytes(LOG)
    (tmp_path / "logs" / ".hidden").write_bytes(LOG)
    (tmp_path / "logs" / "deep" / "c.log").write_bytes(LOG)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "d.log").write_bytes(LOG)
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "same.log").symlink_to(tmp_path / "logs" / "b.log")
    (tmp_path / "logs" / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "logs" / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "logs" / "socket"))
        found = names(tmp_path / "logs", tmp_path / "logs" / "b.log", tmp_path / "logs")
    assert [Path(name).name for name in found] == [".hidden", "b.log", "c.log", "d.log"]


@pytest.mark.parametrize(
    "oldest_first",
    [
        ["service.log.10.gz", "service.log.2.gz", "service.log.1", "service.log"],
        ["service.log-20260228.gz", "service.log-20260301", "service.log"],
        ["service-2026-02-28.log", "service-2026-03-01.log", "service.log"],
        ["service.2.log", "service.1.log", "service.log"],
        ["0123abc-json.log.2.gz", "0123abc-json.log.1", "0123abc-json.log"],
        ["messages.1.gz", "messages"],
        ["syslog.old", "syslog"],
        ["part1.log", "part2.log", "part10.log"],
        ["part.1.log", "part.2.log"],
        ["xaa", "xab"],
    ],
)
def test_a_rotated_set_is_in_order_however_it_is_named(tmp_path: Path, oldest_first: list[str]) -> None:
    for name in oldest_first:
        (tmp_path / name).write_bytes(LOG)
    for order in itertools.islice(itertools.permutations(oldest_first), 6):
        assert [Path(name).name for name in names(*(tmp_path / name for name in order))] == oldest_first
    assert [Path(name).name for name in names(tmp_path)] == oldest_first


def test_what_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="No such file"):
        names(tmp_path / "nothing")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(BadInputError, match=r"[Tt]oo many"):
        names(tmp_path / "a")
    with pytest.raises(BadInputError):
        names("a\0b")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n \n\n", "blank"),
        (bytes(range(256)) * 50, "not text"),
        (b"\0" * 5000, "not text"),
        (b'{"a": [1, 2]}', "JSON, but not docker's or kubectl's"),
        (b"[]", "JSON, but not docker's or kubectl's"),
    ],
)
def test_a_file_without_a_line_to_read(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BadInputError) as error:
        names(tmp_path / "x")
    assert any(said in line for line in error.value.evidence)
    assert error.value.next_step
    (tmp_path / "y").write_bytes(LOG)
    unusable = read_paths([str(tmp_path)], hints=NONE).sources[0]
    assert (unusable.kind, unusable.lines) == (Kind.UNUSABLE, ())
    assert said in unusable.notes[0]


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no file"):
        names(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission_gives_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "secret.log").write_bytes(LOG)
    (tmp_path / "secret.log").chmod(0)
    (unread,) = read_paths([str(tmp_path)], hints=NONE).unread
    assert unread.command == f"sudo cat {tmp_path / 'secret.log'}"
    with pytest.raises(BadInputError) as error:
        names(tmp_path / "secret.log")
    assert error.value.next_step.startswith("sudo cat")


def test_permission_errors_without_being_an_ordinary_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "secret log").write_bytes(LOG)
    real = Path.open

    def refuse(path: Path, *args: object, **more: object) -> object:
        if path.name == "secret log":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    (unread,) = read_paths([str(tmp_path)], hints=NONE).unread
    assert (unread.because, unread.command) == ("no permission", f"sudo cat '{tmp_path / 'secret log'}'")
    with pytest.raises(BadInputError) as error:
        names(tmp_path / "secret log")
    assert error.value.next_step.startswith("sudo cat")


def test_a_binary_journal_is_named_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "system.journal").write_bytes(b"LPKSHHRH" + b"\0" * 100)
    (tmp_path / "a.log").write_bytes(LOG)
    (unread,) = read_paths([str(tmp_path)], hints=NONE).unread
    assert unread.command == f"journalctl --file {tmp_path / 'system.journal'} -o json"


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\x1b[31m.log"
    with open(name, "wb") as file:  # noqa: PTH123 - a name in bytes
        file.write(LOG)
    (found,) = names(tmp_path)
    assert found.isprintable()
    found.encode()


def test_what_was_kept_is_bounded_over_all_files(tmp_path: Path) -> None:
    for n in range(10):
        (tmp_path / f"{n}.log").write_bytes(LOG * 1000)
    intake = read_paths([str(tmp_path)], hints=NONE, limits=Limits(total_lines=5000))
    kept = [len(source.lines) for source in intake.sources]
    assert kept[:3] == [2000, 2000, 2000]
    assert all(count < 500 for count in kept[3:])
    assert all(source.total_lines == 2000 for source in intake.sources)
