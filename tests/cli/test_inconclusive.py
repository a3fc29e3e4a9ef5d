"""What is proposed after a run that settled nothing: what would help, and not what would not."""

from __future__ import annotations

from typing import Any

import pytest

from draftmark.cli.inconclusive import next_step

QUIETER = "next: a quieter host, more rounds (--rounds), or more and longer answers (--requests, --max-tokens)"


def arm(name: str, status: str, why: str | None = None, trials: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return {"arm": name, "label": f"depth {name[1:]}", "status": status, "why": why, "trials": trials}


def told(*arms: dict[str, Any]) -> str:
    return next_step({"arms": [arm("off", "measured"), *arms], "baseline": {"arm": "off"}}, "/tmp/a run")


@pytest.mark.parametrize(
    "arms",
    [
        (),
        (arm("d4", "measured"),),
        (arm("d4", "void"),),  # disturbed: no server died
        (arm("d4", "measured"), arm("d8", "did-not-start")),  # what is there is too noisy
        (arm("d4", "measured", "trials/02-d4/why.json"),),  # another trial of it has figures
    ],
)
def test_noise_is_met_by_more_and_quieter(arms: tuple[dict[str, Any], ...]) -> None:
    assert told(*arms) == QUIETER


def test_an_arm_that_died_is_to_be_mended_or_left_out() -> None:
    said = told(arm("d4", "void", "trials/02-d4/why.json"))
    assert said == (
        "next: see why depth 4 ended: '/tmp/a run/trials/02-d4/why.json'; mend that, or name other depths "
        "(--depth), and run it again"
    )


def test_all_that_died_are_named_and_a_log_stands_in_for_a_post_mortem() -> None:
    said = told(arm("d4", "did-not-start", trials=(2, 5)), arm("d8", "did-not-start", "trials/03-d8/why.json"))
    assert (
        "depth 4, depth 8 ended: '/tmp/a run/trials/05-d4/server.log' '/tmp/a run/trials/03-d8/why.json';" in said
    )
    assert "quieter" not in said
