"""Real deaths under a real systemd and a real kernel: what they leave, and what `draftmark why` makes of it.

Each is asked about as root and as an ordinary user. `python -m tests.lab` also plays those for which every run has
no time. The two labs play at the same time, in the background; the tests wait for what they look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.lab.deaths import DEATHS, Death
from tests.lab.expect import wrong_answers, wrong_evidence
from tests.lab.machine import Machine, Mode
from tests.lab.packages import UnavailableError
from tests.lab.play import USERS, Played, has_judge, play
from tests.lab.root import USER

QUICK = [(death, mode) for mode in Mode for death in DEATHS if mode in death.quick]
# In a kernel of its own an answer takes seven seconds of a core: there an ordinary user asks about these alone.
ALL_ASK = {"oom-main", "segfault"}
# Answers that are known to be wrong still, by who asks. A name leaves when its answer is right.
WAITING = {
    "root": {
        "oom-child-stop",
        "oom-child-kill",
        "oom-child-continue",
        "oom-slice",
        "kill-9",
        "segfault-no-core",
        "start-limit",
        "restart-hid-kill",
    },
    USER: {
        "stop-timeout-abort",
        "oom-child-stop",
        "oom-child-kill",
        "oom-child-continue",
        "oom-slice",
        "oomd",
        "watchdog",
        "restart-hid-timeout",
        "restart-hid-kill",
    },
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Stage:
    """One lab, and the deaths that are played in it one after the other."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._worker = ThreadPoolExecutor(1)
        self._machine = self._worker.submit(Machine.boot, mode)
        self._played: dict[str, Future[Played]] = {}

    def book(self, death: Death) -> None:
        if death.name not in self._played:
            self._played[death.name] = self._worker.submit(self._play, death)

    def _play(self, death: Death) -> Played:
        return play(self._machine.result(), death, users=_users(death, self._mode) if has_judge() else ())

    def played(self, death: Death) -> Played:
        try:
            return self._played[death.name].result()
        except UnavailableError as reason:
            pytest.skip(f"{self._mode}: {reason}")

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)
        with suppress(UnavailableError):
            self._machine.result().close()
        self._worker.shutdown()


def _users(death: Death, mode: Mode) -> tuple[str, ...]:
    return USERS if mode is Mode.SHARED or death.name in ALL_ASK else USERS[:1]


def _name(value: object) -> str:
    return f"{value[1]}-{value[0].name}" if isinstance(value, tuple) else str(value)


def _chosen(session: pytest.Session) -> Iterator[tuple[Death, Mode]]:
    for item in session.items:
        if isinstance(item, pytest.Function) and item.path == Path(__file__):
            chosen: tuple[Death, Mode] = item.callspec.params["played"]  # type: ignore[assignment]
            yield chosen


@pytest.fixture(scope="session")
def stages(request: pytest.FixtureRequest) -> Iterator[Callable[[Mode], Stage]]:
    """The labs that the chosen tests need, with all that they need booked."""
    open_stages: dict[Mode, Stage] = {}
    for death, mode in _chosen(request.session):
        if mode not in open_stages:
            open_stages[mode] = Stage(mode)
        open_stages[mode].book(death)
    yield open_stages.__getitem__
    for stage in open_stages.values():
        stage.close()


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest, stages: Callable[[Mode], Stage]) -> Played:
    death, mode = request.param
    return stages(mode).played(death)


@pytest.mark.parametrize("played", QUICK, ids=_name, indirect=True)
def test_the_death_leaves_its_evidence(played: Played) -> None:
    assert wrong_evidence(played) == []


@pytest.mark.skipif(not has_judge(), reason="this Draftmark has no judge")
@pytest.mark.parametrize(
    ("played", "user"),
    [(each, user) for each in QUICK for user in _users(*each)],
    ids=_name,
    indirect=["played"],
)
def test_why_names_the_cause(played: Played, user: str) -> None:
    wrong = wrong_answers(played, user)
    if wrong and played.answers[user].document and played.death.name in WAITING[user]:
        pytest.xfail("; ".join(wrong))
    assert wrong == []
