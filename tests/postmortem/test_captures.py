"""Every captured scenario gets its right cause, or an honest `unsettled`. The table is in `expected.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmark.errors import BadInputError
from draftmark.postmortem.model import Confidence, Verdict

from .corpus import CAPTURES, is_memory, judged
from .expected import JOURNAL_ALONE, JOURNAL_ALONE_V1, LLAMA, SGLANG, SYSTEMD, VLLM, Expected

pytestmark = pytest.mark.skipif(not CAPTURES.exists(), reason="no captures at ../shared/captures")

MODES = ("cgroup-v2", "hybrid-v1")
VARIANTS = {
    "short": ("journal.short-iso.txt", "show.txt", "kernel.short-iso.txt"),
    "json": ("journal.jsonl", "show.txt", "kernel.jsonl"),
    "journal alone": ("journal.short-iso.txt",),
    "journal alone, json": ("journal.jsonl",),
}


def examined(*paths: Path) -> Verdict:
    """The verdict on copies whose folder says nothing."""
    from draftmark.cli.why import examine_paths

    return judged(examine_paths, {path.name: path.read_bytes() for path in paths if path.exists()})


def fits(verdict: Verdict, expected: Expected) -> None:
    said = f"{verdict.cause} ({verdict.confidence}): {verdict.summary}"
    assert verdict.cause in expected.causes, f"{said}; true is: {expected.why}"
    if expected.sure:
        assert verdict.confidence == Confidence.CERTAIN, f"{said}; true is: {expected.why}"
    if expected.sure is False:
        assert verdict.confidence != Confidence.CERTAIN, f"{said}; true is: {expected.why}"
    assert verdict.evidence or verdict.cause == "unsettled", said


def systemd() -> Iterator[tuple[str, str, str, Expected]]:
    """Mode, scenario, variant, what is expected."""
    for mode in MODES:
        for name, full in SYSTEMD.items():
            for variant in VARIANTS:
                alone = JOURNAL_ALONE_V1 if mode == "hybrid-v1" else JOURNAL_ALONE
                yield mode, name, variant, alone.get(name, full) if "alone" in variant else full


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("mode", "name", "variant", "expected"),
    [pytest.param(*row, id=" · ".join(row[:3])) for row in systemd()],
)
def test_systemd(mode: str, name: str, variant: str, expected: Expected) -> None:
    folder = CAPTURES / "systemd" / mode / name
    if not folder.exists():
        pytest.skip("not captured in this mode")
    files = [folder / file for file in VARIANTS[variant]]
    if not any(file.exists() and file.read_bytes() for file in files):
        with pytest.raises(BadInputError, match="empty"):
            examined(*files)
        return
    fits(examined(*files), expected)


def test_every_scenario_is_in_the_table() -> None:
    captured = {path.name for mode in MODES for path in (CAPTURES / "systemd" / mode).iterdir()}
    assert captured == set(SYSTEMD)
    assert {path.stem for path in (CAPTURES / "sglang-h200").glob("*.log")} == set(SGLANG)
    assert {path.stem for path in (CAPTURES / "llama-server").glob("*.stderr")} == set(LLAMA)


@pytest.mark.parametrize("file", ["journal.short-iso.txt", "journal-all.short-iso.txt", "journal.jsonl"])
def test_a_core_dump(file: str) -> None:
    verdict = examined(CAPTURES / "systemd" / "coredump" / "c-abort" / file)
    fits(verdict, SYSTEMD["c-abort"])


@pytest.mark.parametrize("name", SGLANG)
def test_sglang(name: str) -> None:
    verdict = examined(CAPTURES / "sglang-h200" / f"{name}.log")
    fits(verdict, SGLANG[name])
    assert verdict.engine == "sglang"


def test_the_killed_scheduler_is_named_and_no_memory_is() -> None:
    verdict = examined(CAPTURES / "sglang-h200" / "kill_child.log")
    told = " ".join(
        [verdict.summary, *(e.text for e in verdict.evidence), *(c.because for c in verdict.candidates)]
    )
    assert "scheduler" in told
    assert not is_memory(verdict.cause)
    assert {unread.source for unread in verdict.not_examined} >= {"kernel log"}


def test_a_pool_that_did_not_fit_is_a_failed_start() -> None:
    verdict = examined(CAPTURES / "sglang-h200" / "q35_k10_mf0.62.log")
    assert any("leave no GPU memory for the KV cache" in e.text for e in verdict.evidence)
    assert verdict.phase == "startup"


@pytest.mark.parametrize("whole", [False, True], ids=["stderr", "all files"])
@pytest.mark.parametrize("name", LLAMA)
def test_llama_server(name: str, whole: bool) -> None:
    folder = CAPTURES / "llama-server"
    ends = ("stderr", "stdout", "rc", "cmd") if whole else ("stderr",)
    verdict = examined(*(folder / f"{name}.{end}" for end in ends))
    fits(verdict, LLAMA[name])
    assert verdict.engine in ("llama.cpp", None)


@pytest.mark.parametrize("name", VLLM)
def test_vllm(name: str) -> None:
    fits(examined(*(CAPTURES / "vllm-cpu" / f"{name}.{end}" for end in ("stdout", "stderr"))), VLLM[name])
