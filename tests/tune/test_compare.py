"""Two runs are held against each other only if they measured the same thing."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest

from draftmark.errors import RefusedError
from draftmark.tune.compare import compare, differences, sentence, unlike


def run(*figures: float, arm: str = "d4") -> dict[str, Any]:
    return {
        "workloads": [{"name": "copy", "sha256": "a" * 64}],
        "settings": {"api": "openai-chat", "requests": {"1": 3}},
        "host": {"cpu_model": "EPYC", "cpus": 2, "memory_gib": 23.5},
        "arms": [
            {"arm": arm, "axes": {"copy@1": {"tok_s": figures[0], "values": list(figures), "window": "steady"}}},
            {"arm": "d2", "axes": {}},
        ],
    }


def test_a_difference_beyond_noise() -> None:
    rows = compare(run(40.0, 41.0, 40.5), run(60.0, 61.0, 60.5))
    assert rows[0]["ratio"] == pytest.approx(1.494, abs=0.01)
    assert rows[0]["low"] > 1.4
    assert "1 of 1 comparisons differ beyond noise" in sentence(rows)
    assert "d4 on copy@1" in sentence(rows)


def test_no_difference() -> None:
    rows = compare(run(40.0, 44.0, 42.0), run(43.0, 41.0, 42.0))
    assert rows[0]["low"] < 1 < rows[0]["high"]
    assert sentence(rows) == "no difference beyond noise in 1 comparisons"
    same = compare(run(40.0, 40.0), run(40.0, 40.0))
    assert same[0]["low"] < 0.96  # figures that agree to the digit do not make two runs one
    small = compare(run(40.0, 40.1, 40.0), run(40.6, 40.7, 40.6))
    assert "no difference" in sentence(small)


def test_identical_servers_seldom_differ() -> None:
    rng = random.Random(41)
    alarms = 0
    for _ in range(60):
        runs = []
        for _ in range(2):
            day = rng.gauss(0, 0.02)
            document = run(40.0)
            document["arms"] = [
                {
                    "arm": f"d{depth}",
                    "axes": {
                        f"w@{c}": {
                            "tok_s": 40.0,
                            "values": [40 * math.exp(day + rng.gauss(0, 0.02)) for _ in range(3)],
                        }
                        for c in range(4)
                    },
                }
                for depth in range(4)
            ]
            runs.append(document)
        alarms += "differ beyond noise" in sentence(compare(*runs))
    assert alarms <= 6


def test_what_differs_is_told() -> None:
    a, b = run(40.0, 41.0), run(40.0, 41.0)
    a["engine"], b["engine"] = ({"name": "llamacpp", "version": v, "command": ["x", v]} for v in ("1", "2"))
    assert differences(a, b) == ["engine.version: 1 against 2", "engine.command: x 1 against x 2"]


def test_single_figures_have_no_interval() -> None:
    row = compare(run(40.0), run(50.0))[0]
    assert (row["ratio"], row["low"], row["high"]) == (pytest.approx(1.25), None, None)
    assert "nothing can be judged" in sentence([row])
    both = sentence([row, *compare(run(40.0, 40.1), run(40.0, 40.1))])
    assert (
        both
        == "no difference beyond noise in 1 comparisons; 1 more have a single trial on a side and cannot be judged"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("workloads", 0, "sha256"), "b" * 64),
        (("settings", "api"), "openai"),
        (("settings", "requests"), {"1": 8}),
        (("host", "cpus"), 8),
        (("host", "cpu_model"), "Xeon"),
    ],
)
def test_unlike_runs_are_refused_with_the_field(path: tuple[Any, ...], value: Any) -> None:
    other = copy.deepcopy(run(40.0, 41.0))
    place: Any = other
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(RefusedError) as caught:
        compare(run(40.0, 41.0), other)
    assert len(caught.value.evidence) == 1
    assert str(path[0]) in caught.value.evidence[0]
    assert unlike(run(1.0), run(2.0)) == []


def test_nothing_in_common() -> None:
    with pytest.raises(RefusedError, match="no measured arm in common"):
        compare(run(40.0, 41.0), run(40.0, 41.0, arm="d8"))
