"""Figures without a server."""

from __future__ import annotations

import json

import pytest

from draftmark.cli.main import main
from draftmark.sim.acceptance import survival
from draftmark.sim.calibrate import cases
from draftmark.sim.setup import Setup, setup
from draftmark.sim.whatif import figures
from draftmark.sim.words import Words

from .conftest import drafting

FOUNDING = ("--mem-fraction-static", "0.7915", "--mamba-scheduler-strategy", "extra_buffer")
SIM = ("sim", "--model", "qwen35-122b", "--gpus", "4xrtx-pro-6000", "--sglang-version", "0.5.12")


def founding(steps: int) -> Setup:
    flags = (*FOUNDING, *drafting(steps))
    return setup(
        Words(
            model="qwen35-122b", gpus="4xrtx-pro-6000", version="0.5.12", calibrate="founding", flags=flags, noise=0
        )
    )


def test_one_request_goes_as_fast_as_its_rounds_say() -> None:
    made = founding(3)
    found = figures(made, 1, prompt=1, output=2000)
    length = 1 + sum(survival(cases()["founding"]["chances"], 3))
    assert found.accept_len == pytest.approx(length, rel=0.01)
    assert found.decode_tok_s == pytest.approx(234, rel=0.02)
    assert found.retractions == 0


def test_what_waits_in_the_queue_is_not_served_faster() -> None:
    """Depth 5 takes 17 at once: with 32 under way it loses to depth 4, and a request waits seconds."""
    four, five = (figures(founding(steps), 32) for steps in (4, 5))
    assert four.output_tok_s > five.output_tok_s
    assert five.ttft_s > 4 * four.ttft_s
    assert five.decode_tok_s > four.decode_tok_s


def test_a_pool_that_is_too_small_sends_requests_back() -> None:
    flags = ("--max-total-tokens", "2000", "--max-running-requests", "16")
    made = setup(Words(model="smollm2-135m", flags=flags))
    found = figures(made, 16, prompt=20, output=400)
    assert found.retractions > 0
    assert 0 < found.output_tok_s < 16 * found.decode_tok_s


def test_the_verb(capfd: pytest.CaptureFixture[str]) -> None:
    told = (
        "--calibrate",
        "founding",
        "--what-if",
        "1,8",
        "--depth",
        "off,4,10",
        "--json",
        "--",
        *FOUNDING,
        *drafting(3),
    )
    assert main((*SIM, *told)) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "draftmark.sim/1"
    off, four, ten = document["arms"]
    assert [arm["fits"] for arm in (off, four, ten)] == [True, True, False]
    assert ten["levels"] == []
    assert ten["max_running_requests"] is None
    assert four["max_running_requests"] == 21
    assert [level["concurrency"] for level in four["levels"]] == [1, 8]
    assert off["levels"][0]["accept_len"] is None
    assert off["levels"][0]["output_tok_s"] < four["levels"][0]["output_tok_s"]


def test_the_verb_for_people(capfd: pytest.CaptureFixture[str]) -> None:
    assert main((*SIM, "--what-if", "2", "--", *FOUNDING)) == 0
    shown = capfd.readouterr().out
    assert "no prediction" in " ".join(shown.split())
    assert "44" in shown


def test_words_it_does_not_have(capfd: pytest.CaptureFixture[str]) -> None:
    assert main((*SIM, "--what-if", "2", "--depth", "3", "--", *FOUNDING)) == 2
    assert main(("sim", "--model", "nothing", "--what-if", "2")) == 2
    assert main(("sim", "--model", "smollm2-135m", "--speed", "0")) == 2
    assert main(("sim", "--model", "smollm2-135m", "--noise", "1")) == 2
    assert "neither a known model" in capfd.readouterr().err
