"""The labelled deaths that lie beside the checkout, and the scoring itself on answers that are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftmark.model import Evidence
from draftmark.postmortem.model import Confidence, Phase, Verdict

from .corpus import CORPUS, Answer, Case, Tally, answer, cites, is_memory, laid_out, load

here = pytest.mark.skipif(not CORPUS.exists(), reason="no labelled cases at ../shared/corpus")


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    from draftmark.cli.why import examine_paths

    return {case.name: answer(examine_paths, case) for case in load()}


@here
def test_the_corpus_is_answered_as_the_contract_demands(answers: dict[str, Answer]) -> None:
    shortfalls = Tally.of(answers.values()).shortfalls
    assert not shortfalls, {name: a.error or a.cause for name, a in answers.items() if not a.right}


@here
def test_no_answer_names_memory_where_memory_was_not_the_cause(answers: dict[str, Answer]) -> None:
    assert not {name: a.cause for name, a in answers.items() if a.false_memory}


@here
def test_no_wrong_answer_is_called_certain(answers: dict[str, Answer]) -> None:
    assert not {n: a.cause for n, a in answers.items() if a.wrong and a.confidence == Confidence.CERTAIN}


@here
def test_an_answer_about_a_cause_shows_lines_that_are_in_the_files(answers: dict[str, Answer]) -> None:
    bare = [name for name, a in answers.items() if a.cause != "unsettled" and not a.cited]
    assert not bare


# The scoring itself.

LOG = b"ready\nCUDA out of memory. Tried to allocate 2 GiB\nbye\n"


def case(cause: str, *, root: str | None = None, **label: object) -> Case:
    keys = ["out of memory. Tried"]
    full = {"cause": cause, "root_cause": root, "key_evidence": keys, "not": ["healthy-exit"], **label}
    return Case("one", {"service.log": LOG}, full)


def verdict(cause: str, line: int | None = 2, text: str = "CUDA out of memory. Tried to allocate 2 GiB") -> Verdict:
    proof = Evidence(file="/somewhere/service.log", line=line, time=None, text=text)
    return Verdict(cause=cause, confidence=Confidence.LIKELY, summary="", phase=Phase.SERVING, evidence=(proof,))


def scored(one: Case, cause: str) -> Answer:
    return answer(lambda _paths: verdict(cause), one)


def test_the_label_is_not_handed_over_and_the_folder_says_nothing() -> None:
    seen: list[str] = []

    def examine(paths: Sequence[str]) -> Verdict:
        seen.extend(paths)
        assert [Path(p).read_bytes() for p in paths] == [LOG]
        return verdict("port-in-use")

    answer(examine, case("port-in-use"))
    assert [Path(p).name for p in seen] == ["service.log"]
    assert "one" not in seen[0].split("/")


def test_files_are_handed_over_in_the_order_asked_for() -> None:
    with laid_out({"a": b"1", "b": b"2"}, ("b", "a")) as paths:
        assert [Path(p).name for p in paths] == ["b", "a"]


@pytest.mark.parametrize(
    ("label", "root", "said", "counts"),
    [
        ("port-in-use", None, "port-in-use", "right"),
        ("start-limit-hit", "port-in-use", "port-in-use", "right"),
        ("start-limit-hit", "cgroup-oom", "cgroup-oom", "right"),
        ("port-in-use", None, "unsettled", "unsettled"),
        ("unsettled", None, "unsettled", "right"),
        ("port-in-use", None, "fd-limit", "wrong"),
        ("port-in-use", None, "healthy-exit", "wrong hasty"),
        ("port-in-use", None, "cuda-oom-weights-load", "wrong false_memory"),
        ("kv-pool-exhausted", None, "earlyoom", "wrong false_memory"),
        ("cgroup-oom", None, "container-oomkilled", "wrong missed_memory"),
        ("cgroup-oom", None, "fd-limit", "wrong missed_memory"),
        ("cgroup-oom", None, "unsettled", "unsettled"),
    ],
)
def test_what_counts_as_what(label: str, root: str | None, said: str, counts: str) -> None:
    one = scored(case(label, root=root), said)
    names = ("right", "wrong", "unsettled", "hasty", "false_memory", "missed_memory")
    assert {name for name in names if getattr(one, name)} == set(counts.split())


@pytest.mark.parametrize(
    ("line", "text", "counts"),
    [
        (2, "CUDA out of memory. Tried to allocate 2 GiB", True),
        (1, "CUDA out of memory. Tried to allocate 2 GiB", False),
        (9, "CUDA out of memory. Tried to allocate 2 GiB", False),
        (None, "CUDA out of memory. Tried to allocate 2 GiB", False),
        (2, "something else", False),
    ],
)
def test_a_citation_counts_only_with_the_right_line_and_its_text(line: int | None, text: str, counts: bool) -> None:
    assert cites(verdict("x", line, text), case("x")) is counts


def test_a_citation_of_another_file_does_not_count() -> None:
    assert not cites(verdict("x"), Case("one", {"kernel.log": LOG}, {"key_evidence": ["out of memory"]}))


def test_a_crash_of_the_judge_is_a_wrong_answer() -> None:
    def broken(_paths: Sequence[str]) -> Verdict:
        raise RuntimeError("no")

    one = answer(broken, case("port-in-use"))
    assert one.wrong
    assert not one.unsettled
    assert one.error == "RuntimeError: no"


@pytest.mark.parametrize(
    ("right", "unsettled", "false_memory", "uncited", "accepted"),
    [
        (70, 0, 0, 0, True),
        (68, 2, 0, 3, True),
        (67, 3, 0, 0, False),
        (69, 0, 1, 0, False),
        (70, 0, 0, 4, False),
    ],
)
def test_the_floor(right: int, unsettled: int, false_memory: int, uncited: int, accepted: bool) -> None:
    answers = [scored(case("port-in-use"), "port-in-use")] * right
    answers += [scored(case("port-in-use"), "unsettled")] * unsettled
    answers += [scored(case("port-in-use"), "cgroup-oom")] * false_memory
    bare = Answer(case("port-in-use"), "port-in-use", "certain", None, None, False, (), 0.0)
    tally = Tally.of([bare] * uncited + answers[uncited:])
    assert tally.cases == 70
    assert (not tally.shortfalls) is accepted


def test_no_case_at_all_is_not_a_success() -> None:
    assert Tally.of([]).shortfalls


def test_busy_memory_is_not_a_memory_cause() -> None:
    assert not any(map(is_memory, ("gpu-memory-busy-at-start", "kv-pool-exhausted", "workspace-too-small", None)))
    assert all(map(is_memory, ("cuda-oom-kv-pool-init", "systemd-oomd")))


def test_cases_are_read_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "label.json").write_text(json.dumps({"cause": "fd-limit"}))
    (tmp_path / "a" / "node.log").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("not a case")
    (found,) = load(tmp_path)
    assert found.name == "a"
    assert found.files == {"node.log": b"x"}
    assert found.accepted == {"fd-limit"}
    assert found.keys == ()
