"""Against real logs, where they lie beside the checkout: how much of each format is understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmark.postmortem.intake import Hints, read_paths
from draftmark.postmortem.model import Kind, Line, Source

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
CORPUS, CAPTURES = SHARED / "corpus", SHARED / "captures"
pytestmark = pytest.mark.skipif(
    not CORPUS.is_dir() or not CAPTURES.is_dir(), reason="no logs at ../shared/corpus and ../shared/captures"
)

# Per line format: how its lines look as they are written, and what share of those must have a time, a writer (the
# carrier's or the engine's word), and a level.
FORMATS: dict[str, tuple[str, float, float, float]] = {
    "journald short-iso": (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \S+ \S+: ", 1, 1, 0),
    "journald short": (r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ \S+: ", 1, 1, 0),
    "journald json": (r'\{"_', 1, 1, 0),
    "dmesg": (r"\[ *\d+\.\d{6}\] ", 1, 1, 0),
    "dmesg -T": (r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ", 1, 1, 0),
    "SGLang with ranks": (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+\d", 1, 1, 0),
    "SGLang": (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ", 1, 0, 0),
    "SGLang and uvicorn": (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] INFO:     ", 1, 0, 1),
    "vLLM": (r"(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d ", 1, 0, 1),
    "vLLM with processes": (r"\(\w+ pid=\d+\) (?:INFO|WARNING|ERROR) \d\d-\d\d ", 1, 1, 1),
    "vLLM with processes, bare": (r"\(\w+ pid=\d+\)", 0, 1, 0),
    "uvicorn": (r"(?:INFO|ERROR):  +", 0, 0, 1),
    "llama.cpp": (r"\d+\.\d\d\.\d{3}\.\d{3} [IWE] ", 1, 0, 1),
    "Go": (r"time=\d", 1, 0, 1),
    "torch": (r"\[rank\d+\]:\[[EWI]\d+ ", 1, 1, 1),
    "TensorRT-LLM": (r"\[TensorRT-LLM\]\[[A-Z]+\] ", 0, 0, 1),
}


@pytest.fixture(scope="module")
def sources() -> tuple[Source, ...]:
    return read_paths([str(CORPUS), str(CAPTURES)], hints=Hints()).sources


def find(sources: tuple[Source, ...], path: str) -> Source:
    return next(source for source in sources if source.name.endswith(path))


@pytest.mark.parametrize("name", FORMATS)
def test_lines_of_a_format_have_their_time_and_writer(sources: tuple[Source, ...], name: str) -> None:
    pattern, *wanted = FORMATS[name]
    looks = re.compile(pattern)
    lines = [
        line for source in sources if source.kind is Kind.LOG for line in source.lines if looks.match(line.raw)
    ]
    assert lines
    has: tuple[Callable[[Line], bool], ...] = (
        lambda line: line.time is not None and line.stamp is not None,
        lambda line: bool(line.ident or line.actor),
        lambda line: bool(line.level),
    )
    for least, test in zip(wanted, has, strict=True):
        without = [line.raw for line in lines if not test(line)]
        assert len(without) <= (1 - least) * len(lines), without[:5]


def test_nothing_of_a_prefix_is_left_in_the_text(sources: tuple[Source, ...]) -> None:
    prefix = re.compile(
        r"\d{4}-\d\d-\d\d[T ]\d\d:|\[\d{4}-\d\d-\d\d|\((?:APIServer|EngineCore|Worker)|\[ *\d+\.\d{6}\]"
        r"|(?:INFO|WARNING|ERROR) \d\d-\d\d |\x1b"
    )
    left = [
        line.raw
        for source in sources
        if source.kind is Kind.LOG
        for line in source.lines
        if prefix.match(line.text)
    ]
    assert left == []


def test_every_line_of_every_file_is_there(sources: tuple[Source, ...]) -> None:
    for source in sources:
        written = Path(source.name).read_bytes().decode(errors="replace").split("\n")
        assert source.total_lines in (len(written), len(written) - 1)
        if source.kind is Kind.UNUSABLE:
            continue
        assert {line.number for line in source.lines} == set(range(1, source.total_lines + 1)), source.name
        for line in source.lines:
            shown = line.raw.partition(" … ")[0].replace("\ufffd", "")
            assert shown in written[line.number - 1].replace("\x00", ""), (source.name, line.number)


def test_kinds_of_real_files(sources: tuple[Source, ...]) -> None:
    wanted = {
        r"/(systemctl-show|show|[\w-]+\.show)\.txt$": Kind.SYSTEMCTL_SHOW,
        r"/docker-inspect\.json$": Kind.DOCKER_INSPECT,
        r"/kubectl-describe\.txt$": Kind.KUBECTL_DESCRIBE,
        r"/ps\.txt$": Kind.PROCESSES,
        r"/metrics\.(txt|prom)$": Kind.METRICS,
        r"/(label|base\.info)\.json$": Kind.UNUSABLE,
        r"/(service|journal|kernel|client)\.log$": Kind.LOG,
        r"/(status|dmesg|dmesg-T|journal\.short-iso)\.txt$": Kind.LOG,
    }
    for pattern, kind in wanted.items():
        found = {source.name: source.kind for source in sources if re.search(pattern, source.name)}
        assert found
        # A log without a line is empty, and a unit that does not exist may have no properties.
        odd = {name: got for name, got in found.items() if got not in (kind, Kind.UNUSABLE)}
        assert not odd


@pytest.mark.parametrize(
    ("path", "number", "text", "attributes"),
    [
        (
            "sglang-systemd-stop-timeout/journal.log",
            2,
            "llm.service: State 'stop-sigterm' timed out. Killing.",
            {"ident": "systemd", "unit": "llm.service", "host": "gpu-node-07", "pid": 1},
        ),
        (
            "docker-137-not-oom-external/kernel.log",
            1,
            "docker0: port 1(veth51ebb97) entered disabled state",
            {"time": 1021233.101002},
        ),
        (
            "llamacpp-earlyoom-sigterm/service.log",
            1,
            "log_info: verbosity = 3",
            {"time": pytest.approx(0.129), "level": "I"},
        ),
        (
            "vllm-v0-draft-model-ima/service.log",
            2,
            "vLLM API server version 0.8.5.post1",
            {"actor": "APIServer pid=2"},
        ),
        (
            "cgroup-v2/b-oom-main/dmesg-T.txt",
            1,
            "python3 invoked oom-killer: gfp_mask",
            {"ident": "kernel", "clock": "wall"},
        ),
        (
            "cgroup-v2/b-oom-main/dmesg.txt",
            1,
            "python3 invoked oom-killer: gfp_mask",
            {"time": 155.09, "clock": "relative"},
        ),
        (
            "cgroup-v2/b-oom-main/journal.jsonl",
            2,
            "loading model",
            {"pid": 1070, "unit": "b-oom-main.service", "ident": "python3"},
        ),
        (
            "nvlink-xid-145-cascade/kernel.log",
            1,
            "NVRM: Xid (PCI:0000:dc:00): 149",
            {"host": "gpu-node-07", "ident": "kernel"},
        ),
        ("vllm-ray-sigbus-object-store/service.log", 2, "*** SIGBUS received", {"actor": "RayWorker pid=3554640"}),
    ],
)
def test_lines_checked_by_hand(
    sources: tuple[Source, ...], path: str, number: int, text: str, attributes: dict[str, object]
) -> None:
    line = next(line for line in find(sources, path).lines if line.number == number)
    assert line.text.startswith(text)
    for name, value in attributes.items():
        assert getattr(line, name) == value, name


def test_files_of_a_case_share_their_years() -> None:
    for case in sorted(CORPUS.iterdir()):
        if not case.is_dir():
            continue
        read = read_paths([str(case)], hints=Hints()).sources
        times = [line.time for source in read for line in source.lines if line.time and line.clock == "wall"]
        if times:
            assert max(times) - min(times) < 200 * 86400, case.name
