"""A verdict does not depend on who carried the lines, on names and numbers, or on who else was talking.

A spread of the matrix by default; all of it with `python -m bench.metamorphic`.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Verdict

from . import carriers, traffic
from .change import Changed, NotApplicableError
from .corpus import CORPUS, Case, load
from .invariance import LESS, OTHER, SAME, SKIPPED, Outcome, changed, generator, matrix
from .metamorphic import CHANGES, without
from .voices import crowded

here = pytest.mark.skipif(not CORPUS.exists(), reason="no labelled cases at ../shared/corpus")
MANY = "10 000 lines"

JOURNAL = (
    b"2026-06-02T03:10:16+0000 box-7 systemd[1]: Stopping llm.service - LLM...\n"
    b"2026-06-02T03:11:46+0000 box-7 systemd[1]: llm.service: State 'stop-sigterm' timed out. Killing.\n"
    b"2026-06-02T03:11:46+0000 box-7 systemd[1]: llm.service: Killing process 41802 (python) with signal SIGKILL.\n"
)
SERVICE = (
    b"[2026-06-02 03:10:00] INFO:     Started server process [41802]\n"
    b"[2026-06-02 03:10:01] The server is fired up and ready to roll!\n"
    b'[2026-06-02 03:10:02] INFO:     10.20.3.4:4000 - "POST /generate HTTP/1.1" 200 OK\n'
    b"[2026-06-02 03:10:16] Gracefully exiting... Remaining number of requests 3.\n"
)
KERNEL = b"[Tue Jun  2 03:11:46 2026] Out of memory: Killed process 41802 (python3)\n"
FILES = {
    "journal.log": JOURNAL,
    "kernel.log": KERNEL,
    "service.log": SERVICE,
    "systemctl-show.txt": b"Id=llm.service\n",
}


def apply(name: str, files: dict[str, bytes] | None = None) -> Changed:
    return CHANGES[name](files or FILES, random.Random(1))


def spread(number: int) -> list[str]:
    """One change for the n-th case, so that every change is tried on some; the long one on a few more.

    `python -m bench.metamorphic` tries every change on every case.
    """
    names = [name for name in CHANGES if name != MANY]
    picked = [names[number % len(names)]]
    return [*picked, MANY] if number % 20 == 4 else picked


@cache  # no fixture: a fixture's work is traced, whatever its tests are marked with
def outcomes() -> tuple[Outcome, ...]:
    from draftmark.cli.why import examine_paths

    return tuple(matrix(examine_paths, load(), spread))


@pytest.mark.no_cover
@here
def test_no_change_makes_it_another_cause() -> None:
    others = [f"{one.case}, {one.change}: {one.detail}" for one in outcomes() if one.kind == OTHER]
    assert not others


@pytest.mark.no_cover
@here
def test_nearly_all_verdicts_stay() -> None:
    tried = [one for one in outcomes() if one.kind != SKIPPED]
    lost = [f"{one.case}, {one.change}: {one.detail}" for one in tried if one.kind != SAME]
    assert len(tried) > 60
    assert len(lost) <= 0.01 * len(tried), lost


# The changes themselves keep the truth.


def texts(after: Changed) -> str:
    """All that is said in the files, without what carries it."""
    said = []
    for name, content in after.files.items():
        plain = gzip.decompress(content) if name.endswith(".gz") else content
        for line in plain.decode("utf-8", "replace").split("\n"):
            entry = json.loads(line) if line.startswith('{"__REAL') else None
            said.append(re.sub(r"\x1b\[[\d;]*m", "", entry["MESSAGE"] if entry else line))
    return "\n".join(said)


@here
@pytest.mark.parametrize("name", CHANGES)
def test_decisive_lines_survive(name: str) -> None:
    change = crowded(100) if name == MANY else CHANGES[name]
    for case in load():
        try:
            after = change(case.files, generator(case, name))
        except NotApplicableError:
            continue
        said = texts(after)
        moved = name.startswith(("pids", "host", "dates"))
        for key in case.keys:
            assert key in said or (moved and re.search(r"\d", key)), (case.name, key)
        assert sorted(after.order) == sorted(after.files), case.name


@here
@pytest.mark.parametrize("name", CHANGES)
def test_the_same_seed_gives_the_same_files(name: str) -> None:
    case = load()[-1]
    try:
        one, two = (CHANGES[name](case.files, generator(case, name)) for _ in range(2))
    except NotApplicableError:
        return
    assert one == two


def test_all_twelve_kinds_are_there() -> None:
    kinds = {name.split()[0] for name in CHANGES}
    twelve = {
        "prefix",
        "host",
        "pids",
        "dates",
        "ansi",
        "crlf",
        "foreign",
        "10",
        "rotated",
        "gz",
        "doubled",
        "order",
    }
    assert kinds >= twelve


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("short", rb"Jun 02 03:10:16 box-7 python3\[\d+\]: \[2026-06-02 03:10:16\] Gracefully"),
        ("short-iso", rb"2026-06-02T03:10:16\+0000 box-7 python3\[\d+\]: \[2026-06-02 03:10:16\] Gracefully"),
        ("json", rb'"MESSAGE": "\[2026-06-02 03:10:16\] Gracefully'),
        ("docker-t", rb"2026-06-02T03:10:16\.000000000Z \[2026-06-02 03:10:16\] Gracefully"),
        ("compose", rb"server-1   \| \[2026-06-02 03:10:16\] Gracefully"),
        ("cri", rb"2026-06-02T03:10:16\.000000000Z stdout F \[2026-06-02 03:10:16\] Gracefully"),
        ("kubectl", rb"\[pod/server-\w+-\w+/server\] \[2026-06-02 03:10:16\] Gracefully"),
    ],
)
def test_prefixes_look_as_their_carriers_write_them(form: str, line: bytes) -> None:
    after = apply(f"prefix {form}")
    assert re.search(line, after.files["service.log"])
    assert after.files["systemctl-show.txt"] == FILES["systemctl-show.txt"]
    assert after.files["kernel.log"] == KERNEL


def test_journald_json_tells_systemd_from_the_service() -> None:
    after = apply("prefix json")
    manager = json.loads(after.files["journal.log"].split(b"\n")[1])
    service = json.loads(after.files["service.log"].split(b"\n")[0])
    assert (manager["UNIT"], manager["_PID"], manager["SYSLOG_IDENTIFIER"]) == ("llm.service", "1", "systemd")
    assert service["_SYSTEMD_UNIT"] == "llm.service"
    assert manager["__REALTIME_TIMESTAMP"] == "1780369906000000"


def test_pids_change_together_and_only_they() -> None:
    after = apply("pids")
    found = {
        *re.findall(rb"Killing process (\d+)", after.files["journal.log"]),
        *re.findall(rb"server process \[(\d+)\]", after.files["service.log"]),
        *re.findall(rb"Killed process (\d+)", after.files["kernel.log"]),
    }
    assert len(found) == 1
    assert found != {b"41802"}
    assert b"systemd[1]:" in after.files["journal.log"]
    assert b"10.20.3.4:4000" in after.files["service.log"]


def test_hosts_and_addresses_change_together() -> None:
    after = apply("host")
    assert b"box-7" not in after.files["journal.log"]
    assert b"10.20.3.4:4000" not in after.files["service.log"]
    assert b":4000 - " in after.files["service.log"]
    assert len(set(carriers.hosts(after.files))) == 1


@pytest.mark.parametrize(("locale", "word"), [("de", "Mär"), ("fr", "mars"), ("ja", "3月")])
def test_dates_move_together_into_words_of_a_locale(locale: str, word: str) -> None:
    files = {**FILES, "kernel.log": KERNEL}
    for seed in range(400):
        after = CHANGES[f"dates {locale}"](files, random.Random(seed))
        if word.encode() in after.files["kernel.log"]:
            break
    else:
        pytest.fail("March never came")
    assert word.encode() in after.files["journal.log"]
    day = re.search(rb"\[(20\d\d-03-\d\d) 03:10:16\]", after.files["service.log"])
    assert day
    assert f" {int(day[1][-2:]):2} 03:11:46 {day[1][:4].decode()}]".encode() in after.files["kernel.log"]


def test_colours_go_away_again() -> None:
    after = apply("ansi")
    assert any(b"\x1b[" in content for content in after.files.values())
    plain = {n: re.sub(rb"\x1b\[[\d;]*m", b"", c) for n, c in after.files.items()}
    assert plain == FILES


def test_a_foreign_death_is_told_once_and_is_not_ours() -> None:
    for how, lines in traffic.ENDS.items():
        after = apply(f"foreign {how}")
        together = b"".join(after.files.values())
        assert together.count(lines[0].format(u="reportd.service").encode()) == 1
        assert b"llm.service: Main process exited" not in together


def test_many_lines_stand_before_and_after_in_order_of_time() -> None:
    after = apply(MANY, {"service.log": SERVICE}).files["service.log"].decode().split("\n")
    assert len(after) == 20_000 + 4 + 1
    assert after[1].endswith("ready to roll!")
    assert "POST /generate" in after[10_002]
    own = [at for line in after[:10_004] if (at := carriers.moment(line, 2026))]
    assert own == sorted(own)


def test_no_traffic_of_its_own_stands_before_a_server_that_never_was_ready() -> None:
    files = {"service.log": b"[2026-06-02 03:10:00] server_args=ServerArgs(x=1)\nValueError: no\n"}
    after = apply(MANY, files).files["service.log"]
    assert b"Decode batch" not in after
    assert b"GET /assets/" in after


def test_a_rotated_log_is_whole_and_the_older_part_has_the_number() -> None:
    after = apply("rotated").files
    assert after["service.log.1"] + after["service.log"] == SERVICE


def test_doubled_and_zipped() -> None:
    assert apply("doubled").files["kernel.log"] == KERNEL * 2
    assert apply("doubled").files["systemctl-show.txt"] == FILES["systemctl-show.txt"]
    assert gzip.decompress(apply("gz").files["service.log.gz"]) == SERVICE
    assert "service.log" not in apply("gz").files


def test_another_order_is_another_order() -> None:
    assert apply("order").order != tuple(sorted(FILES))
    with pytest.raises(NotApplicableError, match="one file"):
        apply("order", {"service.log": SERVICE})


def test_lines_are_taken_away_and_json_stays_json() -> None:
    files = {"a.log": b"one\ntwo\nthree\n", "inspect.json": b'{\n "a": 1,\n "b": 2\n}\n'}
    left = without(files, lambda _file, _number, text: "two" in text or '"b"' in text)
    assert left["a.log"] == b"one\nthree\n"
    assert json.loads(left["inspect.json"]) == {"a": 1}


# What counts as a change of the verdict.


def say(cause: str, confidence: Confidence) -> Verdict:
    proof = Evidence(file="service.log", line=1, time=None, text="x")
    return Verdict(cause=cause, confidence=confidence, summary="", phase=None, evidence=(proof,))


@pytest.mark.parametrize(
    ("after", "kind", "weaker"),
    [
        (say("fd-limit", Confidence.CERTAIN), SAME, False),
        (say("fd-limit", Confidence.LIKELY), SAME, True),
        (say("unsettled", Confidence.UNSETTLED), LESS, False),
        (say("disk-full", Confidence.LIKELY), OTHER, False),
    ],
)
def test_kinds_of_outcome(after: Verdict, kind: str, weaker: bool) -> None:
    case = Case("one", FILES)
    outcome = changed(lambda _paths: after, case, say("fd-limit", Confidence.CERTAIN), "crlf")
    assert (outcome.kind, outcome.weaker) == (kind, weaker)


def test_a_judge_that_fails_on_a_change_is_no_success() -> None:
    def fails(_paths: Sequence[str]) -> Verdict:
        raise ValueError("no")

    outcome = changed(fails, Case("one", FILES), say("fd-limit", Confidence.CERTAIN), "crlf")
    assert outcome.kind == OTHER


def test_a_judge_of_the_wording_of_a_file_name_is_found_out() -> None:
    def by_name(paths: Sequence[str]) -> Verdict:
        found = any(Path(p).name == "service.log" for p in paths)
        return say("fd-limit" if found else "unsettled", Confidence.CERTAIN)

    case = Case("one", FILES)
    kinds = {o.change: o.kind for o in matrix(by_name, [case])}
    assert kinds["names"] == LESS
    assert kinds["gz"] == LESS
    assert kinds["ansi"] == SAME
