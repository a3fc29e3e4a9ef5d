"""Memory as predicted and as it was: in the records, in the result, and told where the two differ."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.tune.test_trial import D4, OFF, Lab, speed

from draftmark.model import Arm, Fit, FitArm, FitFigures, Refusal
from draftmark.report.reading import read_result
from draftmark.run.directory import RunDirectory
from draftmark.run.records import RunRecord
from draftmark.testing.fakes import FakeWorld
from draftmark.tune.fitting import compared, fit_document, refusal_of, surprise
from draftmark.tune.result import derive


def figures(tokens: int | None, running: int | None = 48) -> FitFigures:
    return FitFigures(kv_tokens=tokens, max_running_requests=running)


def verdict(arm: Arm, tokens: int, *, fits: bool | None = True) -> FitArm:
    return FitArm(
        arm=arm,
        fits=fits,
        figures=figures(tokens),
        low=figures(tokens - 10),
        high=figures(tokens + 10),
        binding="kv-tokens",
        because=("budget 1.00 GiB", "nothing is left for KV"),
    )


def test_what_surely_does_not_fit_is_refused_with_the_arithmetic() -> None:
    assert refusal_of(verdict(D4, 100)) is None
    assert refusal_of(verdict(D4, 100, fits=None)) is None
    assert refusal_of(verdict(D4, 0, fits=False)) == Refusal(
        "does-not-fit", "does not fit: budget 1.00 GiB; nothing is left for KV"
    )


@pytest.mark.parametrize(
    ("fits", "started", "actual", "said"),
    [
        (
            False, True, figures(100),
            "predicted not to fit (budget 1.00 GiB; nothing is left for KV), and started with 100 KV tokens, "
            "48 requests at once",
        ),
        (True, False, None, "predicted to fit with 1,000 KV tokens, 48 requests at once, and did not start"),
        (True, True, figures(1000), None),
        (True, True, figures(1013), None),  # within 0.2 % beside the bounds
        (True, True, figures(1100), "KV tokens: 1,100 instead of 990 to 1,010"),
        (True, True, figures(1000, 21), "requests at once: 21 instead of 48"),
        (None, False, None, None),
        (True, None, None, None),
    ],
)  # fmt: skip
def test_surprises(fits: bool | None, started: bool | None, actual: FitFigures | None, said: str | None) -> None:
    found = surprise(verdict(D4, 1000, fits=fits), actual, started=started)
    assert found is None if said is None else said in str(found)


def test_nothing_known_is_nothing() -> None:
    assert compared(None, None, started=True) is None
    assert compared(None, figures(5), started=True) == {
        "fits": None,
        "actual": {"kv_tokens": 5, "max_running_requests": 48, "state_slots": None},
        "surprise": None,
    }


def test_predicted_and_actual_stand_side_by_side_in_the_result(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "run", FakeWorld(truth_tok_s=speed, found=figures(1100)))
    lab.sweep().run()
    loaded = lab.directory.load()
    assert {r.trial.figures for r in loaded.trials} == {figures(1100)}
    fit = Fit(engine="fake", version=None, arms=(verdict(OFF, 1095), verdict(D4, 1000)))
    record = RunRecord(info=dataclasses.replace(loaded.info, fit=fit), actions=loaded.actions, trials=loaded.trials)
    result = derive(record)
    by_arm = {arm["arm"]: arm["fit"] for arm in result["arms"]}
    assert (by_arm["off"]["kv_tokens"], by_arm["off"]["actual"]["kv_tokens"]) == (1095, 1100)
    assert by_arm["off"]["surprise"] is None
    assert by_arm["d4"]["surprise"] == "KV tokens: 1,100 instead of 990 to 1,010"
    assert [w for w in result["warnings"] if "memory" in w] == [
        "memory was predicted otherwise for depth 4: KV tokens: 1,100 instead of 990 to 1,010"
    ]
    shown = {arm.name: arm.fit for arm in read_result(result).arms}
    assert "1,000 KV tokens" in str(shown["d4"])
    assert "really 1,100 KV tokens and 48 requests" in str(shown["d4"])


def test_a_run_keeps_its_prediction(tmp_path: Path) -> None:
    fit = Fit(
        engine="fake", version="1", arms=(verdict(OFF, 10),), calibrated_from="boot.log", assumptions=("one",)
    )
    lab = Lab(tmp_path / "first", FakeWorld(truth_tok_s=speed))
    made = RunDirectory.create(tmp_path / "second", dataclasses.replace(lab.info, fit=fit))
    assert RunDirectory.open(made.path).info.fit == fit
    assert fit_document(fit)["arms"][0]["low"]["kv_tokens"] == 0
