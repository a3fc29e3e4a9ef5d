"""What the plots draw, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftmark.report.plots import plot_data
from draftmark.report.reading import read_result

Load = Callable[[str], dict[str, Any]]


def drawn(document: dict[str, Any]) -> dict[str, Any]:
    return plot_data(read_result(document))


def test_depths_are_ordinal_and_labelled_by_depth(load: Load) -> None:
    assert [arm["tick"] for arm in drawn(load("normal"))["arms"]] == ["off", "4", "8", "16"]


def test_arms_of_one_depth_are_told_apart(load: Load) -> None:
    document = load("normal")
    document["arms"][2]["depth"] = 4
    assert [arm["tick"] for arm in drawn(document)["arms"]] == ["off", "4a", "4b", "16"]


def test_a_speed_point_has_the_ratios_interval_in_tok_s(load: Load) -> None:
    document = load("normal")
    panel = drawn(document)["speed"][0]
    figure = document["arms"][1]["axes"]["copy@1"]
    (point,) = [point for point in panel["points"] if point["arm"] == "d4"]
    base = figure["tok_s"] / figure["ratio"]
    assert point["tok_s"] == figure["tok_s"]
    assert abs(point["low"] / base - figure["low"]) < 1e-9
    assert abs(point["high"] / base - figure["high"]) < 1e-9
    assert point["values"] == figure["values"]


def test_the_tie_band_holds_every_tie_and_the_baseline_band_its_trials(load: Load) -> None:
    document = load("eleven")
    (panel,) = drawn(document)["speed"]
    (axis,) = document["axes"]
    tied = [axis["values"][arm] for arm in axis["ties"]]
    assert panel["tie"]["high"] == max(tied) == axis["values"][axis["best"]]
    assert panel["tie"]["low"] <= min(tied)
    values = document["arms"][0]["axes"]["chat@1"]["values"]
    assert (panel["baseline"]["low"], panel["baseline"]["high"]) == (min(values), max(values))


def test_roles_say_choice_tie_baseline(load: Load) -> None:
    (panel,) = drawn(load("eleven"))["speed"]
    roles = {point["arm"]: point.get("role") for point in panel["points"]}
    assert roles["off"] == "baseline"
    assert roles["d6"] == "choice"
    assert roles["d8"] == "tie"
    assert roles["d2"] == "other"


def test_arms_without_figures_stand_on_the_axis_with_their_status(load: Load) -> None:
    (panel,) = drawn(load("eleven"))["speed"]
    absent = {point["arm"]: point["absent"] for point in panel["points"] if "absent" in point}
    assert absent == {"d1": "refused", "d10": "did not start"}


def test_an_inconclusive_axis_has_no_tie_band_and_no_choice(load: Load) -> None:
    for panel in drawn(load("inconclusive"))["speed"]:
        assert panel["tie"] is None
        assert not [point for point in panel["points"] if point.get("role") == "choice"]


def test_a_ratio_reads_as_its_interval_allows(load: Load) -> None:
    for panel in drawn(load("normal"))["ratio"]:
        for row in panel["rows"]:
            expected = "better" if row["low"] > 1 else "worse" if row["high"] < 1 else "level"
            assert row["reading"] == expected
            assert row["arm"] != "off"


def test_phases_lie_within_their_trial_in_order(load: Load) -> None:
    for stem in ("normal", "inconclusive", "eleven"):
        for trial in drawn(load(stem))["timeline"]["trials"]:
            ends = [trial["from"]]
            for phase in trial["phases"]:
                assert ends[-1] <= phase["from"] + 1e-9 <= phase["to"] + 1e-9
                ends.append(phase["to"])
            assert ends[-1] <= trial["to"] + 1e-9


def test_a_trial_that_did_not_start_is_all_start(load: Load) -> None:
    (trial,) = [t for t in drawn(load("eleven"))["timeline"]["trials"] if t["status"] == "did-not-start"]
    assert [phase["phase"] for phase in trial["phases"]] == ["start"]
    assert "CUDA out of memory" in trial["text"]
