"""The model of knobs against the same sums done the long way: each system solved anew, nothing kept or shared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import pytest

from draftmark.model import Knob
from draftmark.tune.knobs.model import KnobModel
from draftmark.tune.knobs.space import Point, Space

SPACE = Space(
    (
        Knob(name="a", flag="--a", levels=("1", "2", "4", "8"), runs=1),
        Knob(name="b", flag="--b", levels=("x", "y", "z"), runs=0, ordered=False),
        Knob(name="c", flag="--c", levels=("16", "32", None), runs=2),
    )
)
SEEN: list[tuple[Point, tuple[float, float]]] = [
    ((1, 0, 2), (0.00, 0.01)),
    ((0, 0, 2), (-0.03, -0.11)),
    ((3, 0, 2), (0.04, 0.18)),
    ((1, 1, 2), (0.09, 0.02)),
    ((3, 1, 2), (0.12, 0.26)),
    ((1, 0, 2), (0.01, -0.01)),
]


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> tuple[list[float], float]:
    """By Gauss, with the log of the determinant."""
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    log_det = 0.0
    for i, row in enumerate(rows):
        log_det += math.log(row[i])
        for other in rows[i + 1 :]:
            share = other[i] / row[i]
            other[:] = [o - share * r for o, r in zip(other, row, strict=True)]
    found = [0.0] * len(rows)
    for i in reversed(range(len(rows))):
        known = sum(rows[i][j] * found[j] for j in range(i + 1, len(rows)))
        found[i] = (rows[i][-1] - known) / rows[i][i]
    return found, log_det


def alike(one: Point, two: Point, active: Sequence[int], turn: float) -> float:
    """Covariance of two settings' effects: of each knob, and of each pair."""
    own = []
    for i in active:
        first, second = (SPACE.knobs[i].place(at) for at in (one[i], two[i]))
        if one[i] == two[i]:
            own.append(1.0)
        elif first is None or second is None:
            own.append(0.5 if SPACE.knobs[i].ordered else 0.0)
        else:
            own.append(math.exp(-0.5 * ((first - second) / turn) ** 2))
    return 0.04 * (sum(own) + 0.35**2 * sum(a * b for a, b in combinations(own, 2)))


def long_way(point: Point) -> tuple[list[tuple[float, float]], list[float]]:
    """By axis mean and sd of the log ratio to what runs; and each knob's chance to matter."""
    base, places = SPACE.base, [p for p, _ in SEEN]
    levels = [[y[axis] for _, y in SEEN] for axis in (0, 1)]
    levels = [[y - sum(own) / len(own) for y in own] for own in levels]
    every: list[tuple[float, list[float], float, tuple[int, ...]]] = []
    for size in range(3):
        for moved in combinations((0, 1), size):  # the third was never moved: nothing is known of it
            active = (*moved, 2)
            for turn in (0.35, 0.9):
                for noise in (0.01, 0.02, 0.04):
                    matrix = [
                        [
                            1.0 + alike(p, q, active, turn) + (noise**2 if i == j else 0.0)
                            for j, q in enumerate(places)
                        ]
                        for i, p in enumerate(places)
                    ]
                    heavy = len(active) * math.log(0.4) + (3 - len(active)) * math.log(0.6)
                    cross = [alike(point, p, active, turn) - alike(base, p, active, turn) for p in places]
                    means = []
                    for own in levels:
                        weights, log_det = solved(matrix, own)
                        heavy -= 0.5 * (sum(w * y for w, y in zip(weights, own, strict=True)) + log_det)
                        means.append(sum(w * c for w, c in zip(weights, cross, strict=True)))
                    spread = 2 * (alike(base, base, active, turn) - alike(point, base, active, turn))
                    spread -= sum(s * c for s, c in zip(solved(matrix, cross)[0], cross, strict=True))
                    every.append((heavy, means, spread, active))
    top = max(heavy for heavy, *_ in every)
    kept = [(math.exp(each[0] - top), *each[1:]) for each in every if math.exp(each[0] - top) > 0.01]
    total = sum(weight for weight, *_ in kept)
    found = []
    for axis in (0, 1):
        mean = sum(w * means[axis] for w, means, _, _ in kept) / total
        square = sum(w * (spread + (means[axis] - mean) ** 2) for w, means, spread, _ in kept) / total
        found.append((mean, math.sqrt(square)))
    return found, [sum(w for w, _, _, active in kept if i in active) / total for i in range(3)]


@pytest.mark.parametrize("point", [(2, 0, 2), (3, 2, 2), (0, 1, 0), (2, 1, 1)])
def test_beliefs_are_those_of_the_long_way(point: Point) -> None:
    model = KnobModel(SPACE, SEEN)
    model.beliefs((3, 1, 2))  # what is kept for others is not mistaken for this one's
    expected, chances = long_way(point)
    for belief, own in zip(model.beliefs(point), expected, strict=True):
        assert (belief.mean, belief.sd) == pytest.approx(own, rel=1e-6)
    assert [model.matters(i) for i in range(3)] == pytest.approx(chances, rel=1e-6)
