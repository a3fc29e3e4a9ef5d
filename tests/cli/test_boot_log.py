"""Where `fit` has the log of a start from: files as they lie about, and what a unit has written."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftmark.cli.boot_log import boot_log_of, boot_log_of_unit
from draftmark.cli.main import main
from draftmark.errors import BadInputError
from draftmark.ports import Completed
from draftmark.testing.hosts import ScriptedHost

DATA = Path(__file__).parents[1] / "data" / "sglang"
CAPTURE = (DATA / "captured-0.5.17-k3.log").read_bytes()
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "captures" / "sglang-h200"
captured = pytest.mark.skipif(not SHARED.exists(), reason="the captured model's config is not at ../shared")


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("no zstd to pack with")
    return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd])
def test_a_file_packed_or_not(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "boot.log.x"
    path.write_bytes(pack(CAPTURE))
    known = sys.version_info >= (3, 14) or (find_spec("backports") and find_spec("backports.zstd"))
    if pack is zstd and not known:
        with pytest.raises(BadInputError, match="compressed"):
            boot_log_of(path)
        return
    found = boot_log_of(path)
    assert (found.name, found.remarks) == (str(path), ())
    assert found.found.time == "2026-11-29 16:50:47"


def test_a_packed_file_that_is_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "boot.log.gz"
    path.write_bytes(gzip.compress(CAPTURE * 3)[:-100])
    found = boot_log_of(path)
    assert found.told
    assert any("cut off" in each for each in found.remarks)


def test_what_is_no_log_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        boot_log_of(tmp_path)
    path = tmp_path / "logs.tgz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("boot.log")
        entry.size = len(CAPTURE)
        archive.addfile(entry, io.BytesIO(CAPTURE))
    with pytest.raises(BadInputError, match="in an archive"):
        boot_log_of(path)
    (tmp_path / "logs.zip").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(BadInputError, match="in an archive"):
        boot_log_of(tmp_path / "logs.zip")


def test_a_later_start_without_memory_is_passed_over_and_said(tmp_path: Path) -> None:
    path = tmp_path / "boot.log"
    path.write_bytes(
        CAPTURE + b"[2026-11-29 18:00:00] server_args=ServerArgs(model_path='/x', tp_size=1)\nKilled\n"
    )
    assert boot_log_of(path).remarks == ("the log's last start says nothing of memory: the one before is taken",)


def member(answers: dict[str, Any], *, plain: ScriptedHost | None = None, **unit: Any) -> Any:
    privileged = ScriptedHost(answers)
    known: dict[str, Any] = {
        "name": "sglang.service", "output_files": {}, "properties": {"InvocationID": "abc123"},
        "manager": SimpleNamespace(user=False), **unit,
    }  # fmt: skip
    return SimpleNamespace(unit=SimpleNamespace(**known), host=plain or privileged, privileged=privileged)


SERVING = (
    b"[2026-11-29 17:00:00] Decode batch, #running-req: 3, #token: 900, gen throughput (token/s): 4.00\n" * 9000
)


def test_the_journal_of_the_present_run_and_no_more_than_needed() -> None:
    it = member({"_SYSTEMD_INVOCATION_ID=abc123": CAPTURE + SERVING})
    found = boot_log_of_unit(it)
    assert found is not None
    assert found.name == "journal of sglang.service, start of 2026-11-29 16:50:47"
    assert len(found.found.text) < len(CAPTURE)
    assert it.host.running == 0
    assert len(it.host.asked) == 1


def test_as_root_where_the_user_sees_nothing() -> None:
    plain = ScriptedHost({"journalctl": Completed(1, b"", "No journal files were opened.")}, is_root=False)
    found = boot_log_of_unit(member({"journalctl": CAPTURE}, plain=plain))
    assert found is not None
    assert found.told


def test_a_unit_that_writes_files() -> None:
    found = boot_log_of_unit(
        member({"^tail .* /var/log/sglang.log": CAPTURE}, output_files={"/var/log/sglang.log": False})
    )
    assert found is not None
    assert found.name.startswith("/var/log/sglang.log, start of")
    emptied = member(
        {"^head .* /var/log/sglang.log": CAPTURE + SERVING}, output_files={"/var/log/sglang.log": True}
    )
    assert boot_log_of_unit(emptied) is not None


def test_a_unit_of_the_users_own_manager() -> None:
    it = member(
        {"--since=Sun 2026-11-29 16:50:40 UTC --user-unit=sglang.service": CAPTURE},
        manager=SimpleNamespace(user=True),
        properties={"ExecMainStartTimestamp": "Sun 2026-11-29 16:50:40 UTC", "InvocationID": "abc123"},
    )
    assert boot_log_of_unit(it) is not None


@pytest.mark.parametrize("journal", [b"", SERVING, b"\xff\x00"])
def test_a_journal_that_has_no_start_any_more(journal: bytes) -> None:
    assert boot_log_of_unit(member({"journalctl": journal})) is None
    assert boot_log_of_unit(member({})) is None
    assert boot_log_of_unit(member({"journalctl": CAPTURE}, properties={})) is None


@captured
def test_a_log_on_stdin_and_a_log_of_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / "sglang.log"
    long.write_bytes(SERVING + CAPTURE + SERVING)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(CAPTURE)))
    arms = []
    for log in ("-", str(long)):
        assert main(["fit", str(SHARED / "model"), "--log", log, "--depth", "1,3", "--json"]) == 0
        found = json.loads(capfd.readouterr().out)
        assert found["calibrated_from"] == ("stdin" if log == "-" else log)
        arms.append([arm["kv_tokens"] for arm in found["arms"]])
    assert arms == [[647_094, 338_982]] * 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@captured
def test_what_powershell_redirects(tmp_path: Path, encoding: str, capsys: pytest.CaptureFixture[str]) -> None:
    """UTF-16 with its mark, in blocks that may end between two bytes of a letter."""
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path = tmp_path / "boot.log"
    path.write_bytes(mark + CAPTURE.decode("utf-8", "replace").replace("\n", "\r\n").encode(encoding))
    assert main(["fit", str(SHARED / "model"), "--log", str(path), "--depth", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arms"][0]["kv_tokens"] == 338_982
