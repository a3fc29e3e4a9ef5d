"""A document becomes records, whatever is missing from it."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import BadInputError
from draftmark.report.html import render_html
from draftmark.report.markdown import render_markdown
from draftmark.report.reading import read_result
from draftmark.report.terminal import print_result

Load = Callable[[str], dict[str, Any]]
HERE = Path(__file__).parent


def test_the_examples_are_what_the_generator_writes() -> None:
    made = runpy.run_path(str(HERE / "make_documents.py"))
    for stem, make in made["DOCUMENTS"].items():
        committed = (HERE / "data" / f"{stem}.json").read_text(encoding="utf-8")
        assert made["written"](make()) == committed, f"{stem}.json is stale: run make_documents.py"


def test_arms_come_in_the_order_of_their_depth(load: Load) -> None:
    document = load("eleven")
    document["arms"].reverse()
    assert [arm.depth for arm in read_result(document).arms] == list(range(11))


def test_arms_without_figures_are_known_as_such(load: Load) -> None:
    view = read_result(load("eleven"))
    assert [(arm.name, arm.status) for arm in view.unmeasured] == [("d1", "refused"), ("d10", "did-not-start")]
    assert len(view.measured) == 9


def test_a_pooled_axis_is_left_out_where_it_says_nothing_new(load: Load) -> None:
    document = load("eleven")
    document["axes"].append(document["axes"][0] | {"axis": "all@1", "workload": "all"})
    assert [axis.name for axis in read_result(document).shown_axes] == ["chat@1"]
    both = read_result(load("normal")).shown_axes
    assert [axis.name for axis in both] == ["copy@1", "chat@1", "all@1", "copy@4", "chat@4", "all@4"]


@pytest.mark.parametrize("schema", [None, "draftmark.bench/1", 7])
def test_another_kind_of_document_is_refused(load: Load, schema: object) -> None:
    with pytest.raises(BadInputError) as caught:
        read_result(load("normal") | {"schema": schema})
    assert caught.value.exit_status == 2
    assert caught.value.next_step


def test_what_is_not_a_number_is_unknown(load: Load) -> None:
    document = load("normal")
    document["rounds"], document["downtime_s"], document["restarts"] = "3", True, float("nan")
    view = read_result(document)
    assert (view.rounds, view.downtime_s, view.restarts) == (None, None, None)


@pytest.mark.no_cover
def test_every_report_survives_any_one_thing_missing(load: Load, screen: Any) -> None:
    """Each key of the document, and of one arm, axis and trial, is left out, nulled, and given a wrong type."""
    whole = load("normal")
    wrong: tuple[object, ...] = (None, [], "x")
    for at in ("", "arms", "axes", "trials", "workloads", "choice", "engine"):
        inner = whole[at] if at else whole
        for key in inner[0] if isinstance(inner, list) else inner:
            for value in wrong:
                document = copy.deepcopy(whole)
                target = document[at] if at else document
                (target[0] if isinstance(target, list) else target)[key] = value
                if document["schema"] != "draftmark.tune/1":
                    continue
                printed = screen()
                print_result(document, printed.console)
                assert printed.text.strip()
                assert render_markdown(document)
                if value is None:  # a page takes its time
                    assert "</html>" in render_html(document, title="t")


def test_figures_without_a_decision_are_shown_undecided(load: Load, screen: Any) -> None:
    document = load("normal") | {"axes": [], "choice": None, "verdict": None, "complete": False}
    view = read_result(document)
    assert {axis.name for axis in view.axes} == {"copy@1", "chat@1", "copy@4", "chat@4"}
    assert not [axis for axis in view.axes if axis.choice or axis.ties]
    printed = screen()
    print_result(document, printed.console)
    assert f"{document['arms'][1]['axes']['chat@4']['tok_s']:.1f}" in printed.text
    assert printed.lines[-1] == "No verdict: the figures at hand settle nothing yet."


def test_a_document_with_nothing_but_its_schema(screen: Any) -> None:
    document = {"schema": "draftmark.tune/1"}
    printed = screen()
    print_result(document, printed.console)
    assert printed.lines[-1] == "No verdict: nothing was measured yet."
    assert "No verdict" in render_markdown(document)
    assert "No verdict" in render_html(document, title="t")
