"""`draftmark why` from the shell: what goes where, and the exit status."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli import why
from draftmark.cli.main import main
from draftmark.postmortem.model import Verdict
from draftmark.testing import verdicts

Draftmark = Callable[..., Any]
KEY = "sk-live-4f9a8b7c6d5e"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[Verdict], list[dict[str, Any]]]:
    """Makes this the verdict, whatever is asked; what was asked is in the list."""

    def become(verdict: Verdict) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def examine(question: Any, **options: Any) -> Verdict:
            calls.append({"question": question, **options})
            return verdict

        monkeypatch.setattr(why, "_examine", examine)
        return calls

    return become


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (verdicts.stop_timeout(), 0),
        (replace(verdicts.stop_timeout(), cause="healthy-running", died=False), 0),
        (replace(verdicts.stop_timeout(), cause="healthy-exit"), 0),
        (verdicts.unsettled(), 40),
    ],
)
def test_exit_status_and_the_card(said: Any, capsys: Any, tmp_path: Path, verdict: Verdict, status: int) -> None:
    said(verdict)
    assert main(["why", str(tmp_path)]) == status
    out = capsys.readouterr().out
    assert out.startswith(verdict.cause)
    assert len(out.splitlines()) <= 40


def test_json_is_one_document_on_stdout_and_nothing_else(said: Any, capfd: Any, tmp_path: Path) -> None:
    said(verdicts.stop_timeout())
    page = tmp_path / "why.html"
    assert main(["why", str(tmp_path), "--json", "--html", str(page)]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "draftmark.why/1"
    assert document["evidence"][0] == {
        "file": "journal of llm.service", "line": 2, "time": "2026-06-02T03:11:46+0000",
        "text": verdicts.TIMED_OUT.text,
    }  # fmt: skip
    assert {
        "summary",
        "phase",
        "ruled_out",
        "consequences",
        "not_examined",
        "candidates",
        "advice",
        "timeline",
    } <= set(document)
    assert str(page) in err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_markdown(said: Any, capfd: Any, tmp_path: Path) -> None:
    said(verdicts.unsettled())
    assert main(["why", str(tmp_path), "--markdown"]) == 40
    assert capfd.readouterr().out.startswith("## Post-mortem")


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_no_form_shows_a_secret(said: Any, capfd: Any, tmp_path: Path, form: tuple[str, ...]) -> None:
    said(verdicts.everywhere(f"serve --api-key {KEY}"))
    page = tmp_path / "why.html"
    main(["why", str(tmp_path), "--html", str(page), *form])
    out, err = capfd.readouterr()
    assert "serve --api-key" in out
    assert KEY not in out + err + page.read_text(encoding="utf-8")


def test_options_reach_the_examination(said: Any, capfd: Any, tmp_path: Path) -> None:
    calls = said(verdicts.unsettled())
    main(["why", "unit:llm", str(tmp_path), "--runs", "7", "--since=-2h", "--service", "other"])
    (call,) = calls
    assert str(call["question"].service) == "unit:llm"
    assert call["question"].paths == (str(tmp_path),)
    assert (call["runs"], call["since"], call["unit"]) == (7, "-2h", "other")


def test_colour_only_where_it_is_wanted(said: Any, capfd: Any, tmp_path: Path, monkeypatch: Any) -> None:
    said(verdicts.stop_timeout())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    main(["why", str(tmp_path)])
    assert "\x1b[3" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("why",), "-"),
        (("why", "nosuchthing"), "draftmark why unit:nosuchthing"),
        (("why", "/nonexistent/x.log"), "check the path"),
        (("why", "url:http://127.0.0.1:9"), "leaves nothing that could be read"),
        (("why", "unit:a", "unit:b"), "one service"),
        (("why", ".", "--json", "--markdown"), "not allowed with"),
        (("why", ".", "--runs", "0"), "whole number from 1 to"),
        (("why", ".", "--runs", "x"), "whole number from 1 to"),
        (("why", ".", "--html", "/nonexistent/x.html"), "its folder does not exist"),
        (("why", ".", "--html", "."), "it is a folder"),
        (("why", "-", "-"), "only once"),
        (("why", "--explain", "stop-timeot"), "stop-timeout-sigkill"),
        (("why", ".", "--explain", "list"), "examines nothing"),
    ],
)
def test_bad_words_are_told_in_one_message(refused: Draftmark, words: tuple[str, ...], part: str) -> None:
    done = refused(*words)
    assert done.status == 2, done.err
    assert part in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_explanations(draftmark: Draftmark) -> None:
    one, everything = draftmark("why", "--explain", "stop-timeout-sigkill"), draftmark("why", "--explain", "list")
    assert (one.status, everything.status) == (0, 0)
    assert "What proves it" in one.out
    assert "stop-timeout-sigkill" in everything.out


def stop_timeout_case(folder: Path) -> Path:
    """A stop that took too long, as files."""
    case = folder / "case"
    case.mkdir()
    journal = [verdicts.STOPPING, verdicts.TIMED_OUT, verdicts.KILLING, verdicts.EXITED, verdicts.RESULT]
    (case / "journal.log").write_text("".join(f"{item.text}\n" for item in journal))
    (case / "service.log").write_text(f"{verdicts.SIGTERM.text}\n{verdicts.DRAINING.text}\n")
    return case


def test_from_files_to_the_verdict(draftmark: Draftmark, tmp_path: Path) -> None:
    case = stop_timeout_case(tmp_path)
    done = draftmark("why", str(case), "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    assert (document["cause"], document["confidence"]) == ("stop-timeout-sigkill", "certain")
    assert any("timed out. Killing" in item["text"] for item in document["evidence"])


def test_from_a_pipe_to_an_honest_unsettled(tmp_path: Path) -> None:
    log = (stop_timeout_case(tmp_path) / "service.log").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "draftmark", "why", "-", "--json"], input=log, capture_output=True, timeout=60
    )
    assert done.returncode == 40, done.stderr
    document = json.loads(done.stdout)
    assert document["cause"] == "unsettled"
    assert document["not_examined"]
    assert document["candidates"]


def test_as_a_function(tmp_path: Path) -> None:
    case = stop_timeout_case(tmp_path)
    assert why.examine_paths([str(case)]).cause == "stop-timeout-sigkill"
    log = io.BytesIO((case / "service.log").read_bytes())
    assert why.examine_paths(["-"], stdin=log).cause == "unsettled"


def test_a_run_of_draftmarks_is_many_servers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text("{}")
    for name in ("01-d3", "02-off"):
        (tmp_path / "trials" / name).mkdir(parents=True)
        (tmp_path / "trials" / name / "server.log").write_text("killed\n")
    assert main(["why", str(tmp_path)]) == 2
    err = capfd.readouterr().err
    assert "a server for each of its 2 trials" in err
    assert "trials/02-off/server.log" in err
