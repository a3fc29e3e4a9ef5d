"""Logs that were cut, or that lost lines: a figure is right, its bounds cover what was there, or there is none."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.log.last_start import last_start
from draftmark.errors import DraftmarkError
from draftmark.model import Arm, Fit
from draftmark.ports import FitScene

DATA = Path(__file__).parents[2] / "data"
HYBRID = (DATA / "sglang" / "h200" / "model" / "config.json").read_bytes()
CAPTURES = {name: (DATA / "sglang" / f"captured-0.5.17-{name}.log").read_bytes() for name in ("k3", "k10")}
FACTS = (
    b"server_args=", b"is reset to", b"CUDA IPC", b"Load weight", b"Mamba Cache", b"KV Cache", b"pool end",
    b"max_total_num_tokens=", b"minimum viable",
)  # fmt: skip
# Lines that hold a fact of memory; what graphs take decides nothing here.
LEAN = {
    name: [line for line in data.splitlines(keepends=True) if any(fact in line for fact in FACTS)]
    for name, data in CAPTURES.items()
}
# Depth: tokens, requests at once, as the boots of all these depths logged them.
LOGGED = {0: (638_839, 181), 1: (647_094, 48), 3: (338_982, 48), 5: (30_870, 48)}
FROM_ONE_BOOT_TO_THE_NEXT = 20


def fitted(log: bytes) -> Fit | None:
    """By the log's own flags; None where it is refused, with advice."""
    scene = FitScene(
        read=lambda _: HYBRID,
        log=last_start([log]).lines(),
        log_name="boot.log",
        model_dir="/model",
    )
    try:
        return SGLang(method="NEXTN").fit((), [Arm(depth) for depth in (*LOGGED, 10)], scene)
    except DraftmarkError as error:
        return None if error.exit_status == 2 and error.next_step else pytest.fail(repr(error))


def covers(log: bytes) -> bool:
    """Whether there is a verdict; it must then hold of every boot that was captured."""
    found = fitted(log)
    if found is None:
        return False
    for depth, figures in LOGGED.items():
        arm = found.of(Arm(depth))
        assert arm is not None
        for name, value, off in zip(
            ("kv_tokens", "max_running_requests"), figures, (FROM_ONE_BOOT_TO_THE_NEXT, 0), strict=True
        ):
            low, high = getattr(arm.low, name), getattr(arm.high, name)
            assert low is not None, (depth, name)
            assert high is not None, (depth, name)
            assert low - off <= value <= high + off, (depth, name)
    deep = found.of(Arm(10))
    assert deep is not None
    assert deep.fits is not True
    return True


def without(name: str, *gone: int) -> bytes:
    return b"".join(line for at, line in enumerate(LEAN[name]) if at not in gone)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CAPTURES)
def test_a_log_cut_at_any_place(name: str) -> None:
    """Behind each line that holds a fact, in the middle of it, and at some places of the log as it is."""
    ends = [0]
    for line in LEAN[name]:
        ends += [ends[-1] + len(line) // 2, ends[-1] + len(line)]
    lean = b"".join(LEAN[name])
    told = sum(covers(lean[:end]) for end in dict.fromkeys(ends))
    chosen = random.Random(name).sample(range(len(CAPTURES[name])), 5)
    for end in [*chosen, len(CAPTURES[name])]:
        covers(CAPTURES[name][:end])
    assert told > 5


@pytest.mark.no_cover
@pytest.mark.parametrize("name", CAPTURES)
def test_any_line_lost(name: str) -> None:
    """Alone, and with another."""
    count = len(LEAN[name])
    pairs = list(combinations(range(count), 2))
    chosen = random.Random(name).sample(pairs, 16)
    told = sum(covers(without(name, *gone)) for gone in [(), *((at,) for at in range(count)), *chosen])
    assert told > 15


def lines_with(name: str, *words: bytes) -> list[int]:
    return [at for at, line in enumerate(LEAN[name]) if all(word in line for word in words)]


def test_the_first_line_of_loading_lost() -> None:
    """The next one is of the draft, with less than half the memory free."""
    (first, _) = lines_with("k3", b"Load weight begin")
    found = fitted(without("k3", first))
    assert found is not None
    assert [found.arms[depth].figures.kv_tokens for depth in range(4)] == [
        pytest.approx(tokens, abs=FROM_ONE_BOOT_TO_THE_NEXT) for tokens, _ in LOGGED.values()
    ]
    assert found.arms[4].fits is False


def test_what_the_draft_took_lost_in_a_start_that_failed() -> None:
    """Its message tells what was free, by a share of what was there when the draft was loaded as well."""
    (line,) = lines_with("k10", b"Load weight end", b"MTP")
    found = fitted(without("k10", line))
    assert found is not None
    assert found.arms[3].fits is True
    assert found.arms[3].figures.kv_tokens == pytest.approx(30_870, abs=2500)
    assert found.arms[4].fits is False


def test_a_running_limit_of_48_that_may_be_speculations_own() -> None:
    """Behind the launcher's other words it was asked for, likely; where they are lost as well, it was not."""
    reset, ipc = lines_with("k3", b"is reset to"), lines_with("k3", b"CUDA IPC")
    for gone, running in ((reset, 48), ([*reset, *ipc], 181), ([], 181)):
        found = fitted(without("k3", *gone))
        assert found is not None
        off = found.arms[0]
        assert off.figures.max_running_requests == running
        assert (off.low.max_running_requests, off.high.max_running_requests) == ((48, 181) if gone else (181, 181))
        assert any("cover both" in each for each in found.assumptions) == bool(gone)
        assert found.arms[2].figures.kv_tokens == 338_982


@pytest.mark.parametrize("digits", [40, 400, 5000])
@pytest.mark.parametrize("figure", [b"avail mem=75.99", b"avail mem=74.05", b"#tokens: 338982", b"size: 48"])
def test_more_digits_than_a_figure_has(figure: bytes, digits: int) -> None:
    """Such a line says nothing, as if it were not there."""
    head = figure[: figure.rindex(b"=" if b"=" in figure else b" ") + 1]
    covers(b"".join(LEAN["k3"]).replace(figure, head + b"9" * digits))


@pytest.mark.parametrize("digits", [40, 5000])
def test_more_digits_than_an_argument_has(digits: int) -> None:
    log = b"".join(LEAN["k3"])
    for name in (b"page_size=1", b"tp_size=1", b"mem_fraction_static=0.62"):
        assert name in log
        assert fitted(log.replace(name, name.split(b"=")[0] + b"=" + b"9" * digits)) is None


def test_a_log_of_another_model_of_the_same_size() -> None:
    log = b"".join(LEAN["k3"])
    assert fitted(log.replace(b"type=Qwen3_5MoeForCausalLM", b"type=GptOssForCausalLM")) is None
    assert fitted(log.replace(b"type=Qwen3_5MoeForCausalLM", b"type=TransformersForCausalLM")) is not None


def test_the_pool_of_another_model() -> None:
    """Where the line of its weights is lost, what a token takes tells."""
    (line,) = lines_with("k3", b"Load weight end", b"Qwen3_5MoeForCausalLM")
    assert fitted(without("k3", line)) is not None
    assert fitted(without("k3", line).replace(b"K size: 3.23 GB", b"K size: 6.46 GB")) is None


@pytest.mark.parametrize(
    ("name", "line", "was", "became"),
    [
        ("k10", b"MTP, avail", b"avail mem=74.05", b"avail mem=64.05"),
        ("k10", b"MTP, avail", b"usage=1.94", b"usage=1.04"),
        ("k10", b"MoeForCausalLM, avail", b"usage=63.11", b"usage=65.11"),
        ("k3", b"MoeForCausalLM, avail", b"avail mem=75.99", b"avail mem=79.99"),
    ],
)
def test_a_digit_that_is_another(name: str, line: bytes, was: bytes, became: bytes) -> None:
    """What a load took and left is not what was free before."""
    (at,) = lines_with(name, line)
    assert was in LEAN[name][at]
    lines = [each.replace(was, became) if at == number else each for number, each in enumerate(LEAN[name])]
    assert fitted(b"".join(lines)) is None


def test_a_line_that_is_there_twice() -> None:
    """Behind the draft's, where the last one would be taken for it."""
    (at,) = lines_with("k10", b"Load weight end", b"MoeForCausalLM")
    assert fitted(b"".join([*LEAN["k10"], LEAN["k10"][at]])) is None
