"""What Optuna keeps of a search of knobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from draftmark.errors import BadInputError, UsageError
from draftmark.model import Knob
from draftmark.tune.knobs import optuna_study
from draftmark.tune.knobs.optuna_study import OptunaStudy, study_name, without_password
from draftmark.tune.knobs.run import Setting

KNOBS = (
    Knob(name="mem", flag="--mem", levels=("0.8", "0.85", "0.9"), runs=1),
    Knob(name="slots", flag="--slots", levels=("16", "32", None), runs=2),
    Knob(name="steps", flag="--steps", levels=("1", "2", "4"), runs=0),
)
RUNS: dict[str, str | None] = {"mem": "0.85", "slots": None, "steps": "1"}


def url(path: Path) -> str:
    return f"sqlite:///{path / 'study.db'}"


@pytest.fixture
def optuna() -> Any:
    return pytest.importorskip("optuna", reason="Optuna is not installed")


def opened(path: Path, run: str, axes: int = 2) -> OptunaStudy:
    return OptunaStudy(url(path), study_name("fake", KNOBS), KNOBS, axes, run)


def test_a_study_tells_what_was_measured_what_failed_and_what_was_left(optuna: Any, tmp_path: Path) -> None:
    study = opened(tmp_path, "one")
    running = Setting(number=2, depth=3, levels={**RUNS, "mem": "0.9"})
    study.keep([Setting(number=0, depth=3, levels=RUNS, ratios=(1.0, 1.0), status="measured"), running])
    done = Setting(number=2, depth=3, levels=running.levels, ratios=(1.1, 1.2), status="measured")
    failed = Setting(number=3, depth=3, levels={**RUNS, "slots": "16"}, status="failed", because="it died")
    left = Setting(number=None, depth=3, levels={**RUNS, "steps": "4"}, status="left", because="does not fit")
    for _ in range(2):  # telling it again changes nothing
        study.keep(
            [Setting(number=0, depth=3, levels=RUNS, ratios=(1.0, 1.0), status="measured"), done, failed, left]
        )
    kept = optuna.load_study(study_name=study_name("fake", KNOBS), storage=url(tmp_path))
    assert [t.state.name for t in kept.trials] == ["COMPLETE", "COMPLETE", "FAIL", "PRUNED"]
    assert kept.trials[1].values == [1.1, 1.2]
    assert kept.trials[1].params == {"mem": 0.9, "slots": "as it is", "steps": 1}
    assert kept.trials[3].user_attrs["because"] == "does not fit"


def test_others_are_told_and_ones_own_are_not(optuna: Any, tmp_path: Path) -> None:
    one, two = opened(tmp_path, "one"), opened(tmp_path, "two")
    measured = Setting(number=4, depth=3, levels={**RUNS, "mem": "0.9"}, ratios=(1.1, 1.2), status="measured")
    one.keep([measured, Setting(number=5, depth=3, levels={**RUNS, "slots": "32"})])
    assert one.others() == ()
    found = two.others()
    assert [(s.levels, s.ratios, s.status) for s in found] == [
        (measured.levels, (1.1, 1.2), "measured"),
        ({**RUNS, "slots": "32"}, (), "running"),
    ]


def test_another_number_of_objectives_is_refused(optuna: Any, tmp_path: Path) -> None:
    opened(tmp_path, "one")
    with pytest.raises(BadInputError, match=r"cannot be used|objectives"):
        opened(tmp_path, "two", axes=1)


def test_a_storage_that_cannot_be_opened_is_one_error_without_its_password(optuna: Any) -> None:
    with pytest.raises(BadInputError) as raised:
        OptunaStudy("nosuch://me:secret@host/x", "s", KNOBS, 2, "one")
    assert "secret" not in str(raised.value)
    assert without_password("postgresql://me:secret@host/x") == "postgresql://me:***@host/x"


def test_without_optuna_the_way_to_install_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError) as raised:
        optuna_study.optuna()
    assert raised.value.next_step == "pip install 'draftmark[search]'"


def test_studies_of_other_services_or_ranges_are_others() -> None:
    assert study_name("a", KNOBS) == study_name("a", KNOBS)
    assert len({study_name("a", KNOBS), study_name("b", KNOBS), study_name("a", KNOBS[:2])}) == 3
