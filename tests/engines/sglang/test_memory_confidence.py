"""Every version, method and kind of model, under flags as they come: no crash, and nothing that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftmark.engines.sglang.engine import SGLang
from draftmark.engines.sglang.log.last_start import last_start
from draftmark.errors import DraftmarkError
from draftmark.model import Arm, Fit, FitArm, Gpu
from draftmark.ports import FitScene

DATA = Path(__file__).parents[2] / "data"
CONFIGS = {
    path.stem: json.dumps(json.loads(path.read_text())["config"]).encode()
    for path in sorted((DATA / "model_config").glob("*.json"))
}
_CAPTURE = (DATA / "sglang" / "captured-0.5.17-k3.log").read_bytes().splitlines(keepends=True)
# Of a log of some hundred lines, those that say something of memory.
CAPTURE = b"".join(line for line in _CAPTURE if b"avail mem" in line or b"server_args=" in line or b" KV C" in line
                   or b"Mamba" in line or b"max_total_num_tokens=" in line)  # fmt: skip
HYBRID = (DATA / "sglang" / "h200" / "model" / "config.json").read_bytes()
SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "/model")
DEPTHS = (0, 1, 3, 5, 16)
VERSIONS = [f"0.5.{minor}" for minor in range(10, 24)]
OLD = ("0.5.10", "0.5.11", "0.5.12", "0.5.13")  # states of a verification are reserved first

FLAGS = st.tuples(
    *(
        st.sampled_from([(), *(tuple(words.split()) for words in choices)])
        for choices in (
            [f"--mem-fraction-static {f}" for f in (0.3, 0.5, 0.62, 0.8, 0.95)],
            ["--disable-radix-cache"],
            [f"--page-size {n}" for n in (1, 16, 64)],
            [f"--tp-size {n}" for n in (2, 4, 8)],
            [f"--max-running-requests {n}" for n in (1, 8, 48, 64, 512)],
            [f"--mamba-full-memory-ratio {r}" for r in (0.1, 0.5, 4)],
            ["--max-mamba-cache-size 5", "--max-mamba-cache-size 400"],
            ["--mamba-ssm-dtype bfloat16"],
            [f"--chunked-prefill-size {n}" for n in (-1, 2048, 16384)],
            ["--dp-size 2", "--dp-size 2 --enable-dp-attention"],
            ["--kv-cache-dtype fp8_e4m3"],
            ["--max-total-tokens 5000"],
            ["--disable-overlap-schedule"],
            ["--enable-linear-replayssm-spec"],
            ["--disable-cuda-graph", "--cuda-graph-max-bs-decode 16"],
            ["--pp-size 2"],
        )
    )
).map(lambda chosen: tuple(word for words in chosen for word in words))
METHODS = st.sampled_from(["NEXTN", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", None])
CARDS = st.sampled_from([16_384, 24_564, 49_140, 81_559, 143_771, 284_160])


def fitted(
    config: bytes, flags: Sequence[str], method: str | None, version: str | None, *, mib: int = 143_771,
    draft: bytes = CONFIGS["qwen3-0.6b"], log: bytes | None = None, depths: Sequence[int] = DEPTHS,
) -> Fit:  # fmt: skip
    words = [*SERVER, *flags]
    if method is not None:
        words += ["--speculative-algorithm", method]
    if method in ("EAGLE3", "STANDALONE"):
        words += ["--speculative-draft-model-path", "/draft"]
    scene = FitScene(
        read=lambda path: draft if path.startswith("/draft") else config,
        gpus=lambda: (Gpu(name="card", total_mib=mib),),
        log=None if log is None else last_start([log]).lines(),
        log_name="boot.log",
        version=version,
        model_dir="/model",
    )
    found = SGLang(version=version).fit(words, [Arm(depth) for depth in depths if depth == 0 or method], scene)
    assert found is not None
    return found


def told(what: Callable[[], Fit | None]) -> Fit | None:
    """The verdict; None where it was refused, as bad input, and with advice."""
    try:
        return what()
    except DraftmarkError as error:
        return None if error.exit_status == 2 and error.next_step else pytest.fail(repr(error))


def possible(arm: FitArm) -> None:
    """Figures within their bounds; none where it does not start; a reason where it is not sure to."""
    for name in ("kv_tokens", "max_running_requests", "state_slots"):
        value, low, high = (getattr(each, name) for each in (arm.figures, arm.low, arm.high))
        assert value is None or (low is not None and high is not None and low <= value <= high and value > 0)
    assert arm.fits is not True or (arm.figures.kv_tokens and arm.figures.max_running_requests)
    assert arm.fits is not False or arm.figures.kv_tokens is None
    assert arm.fits is True or arm.because


def not_better(deeper: FitArm, shallower: FitArm, *, tokens: bool) -> None:
    """A deeper draft of the same method never runs more requests; nor has it more tokens, where `tokens`."""
    if shallower.fits is False and deeper.fits is True:
        # The draft's own KV is in no budget and grows with the tokens: with fewer, more is left beside the pools.
        # And where the count takes in the token that the last round gave, a depth of 1 is none.
        told = ("are left beside the pools", "drafts nothing")
        assert any(words in why for why in shallower.because for words in told)
    names = ("max_running_requests", "kv_tokens") if tokens else ("max_running_requests",)
    for name in names:
        more, less = getattr(deeper.figures, name), getattr(shallower.figures, name)
        assert more is None or less is None or more <= less


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(CONFIGS)), flags=FLAGS, method=METHODS, version=st.sampled_from(VERSIONS), mib=CARDS
)
def test_nothing_impossible_and_no_depth_is_free(
    name: str, flags: tuple[str, ...], method: str | None, version: str, mib: int
) -> None:
    """Since 0.5.14 a hybrid model's split is fixed, and slots that depth takes may come back as tokens (B.5)."""
    found = told(lambda: fitted(CONFIGS[name], flags, method, version, mib=mib))
    if found is None:
        return
    for arm in found.arms:
        possible(arm)
    hybrid = any(arm.figures.state_slots is not None for arm in found.arms)
    tokens = not hybrid or "--disable-radix-cache" in flags or version in OLD
    for shallower, deeper in pairwise(found.arms[1:]):
        not_better(deeper, shallower, tokens=tokens)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(flags=FLAGS, method=METHODS, version=st.sampled_from([None, *VERSIONS]), end=st.floats(0, 1.5))
@example(
    flags=(*("--mem-fraction-static", "0.95", "--tp-size", "4"), *("--max-mamba-cache-size", "5")),
    method="NEXTN",
    version="0.5.10",
    end=0.0,
)
def test_calibrated_by_a_log_cut_anywhere(
    flags: tuple[str, ...], method: str | None, version: str | None, end: float
) -> None:
    log = CAPTURE[: int(end * len(CAPTURE))]
    found = told(lambda: fitted(HYBRID, flags, method, version, log=log))
    if found is None:
        return
    for arm in found.arms:
        possible(arm)
    for shallower, deeper in pairwise(found.arms[1:]):
        not_better(deeper, shallower, tokens="--disable-radix-cache" in flags)


@pytest.mark.parametrize("version", ["0.5.10", "0.5.12", "0.5.14", "0.5.17", "0.5.20", "0.5.23"])
def test_pages_ranks_and_limits_are_continuous(version: str) -> None:
    """One flag changed alone: no figure jumps where SGLang's arithmetic does not."""

    def tokens(name: str, *flags: str, method: str | None = None) -> int:
        arm = fitted(CONFIGS[name], ("--mem-fraction-static", "0.8", *flags), method, version, depths=(0, 3)).arms[
            -1
        ]
        assert arm.figures.kv_tokens is not None
        return arm.figures.kv_tokens

    plain = tokens("qwen3-8b")
    for page in (16, 64, 128):
        paged = tokens("qwen3-8b", "--page-size", str(page))
        assert paged % page == 0
        assert plain - page < paged <= plain
    ranks = [tokens("qwen3-8b", "--tp-size", str(tp)) for tp in (1, 2, 4, 8)]
    assert all(2 * fewer < more < 2.6 * fewer for fewer, more in pairwise(ranks))
    assert tokens("qwen3-8b", "--disable-radix-cache") == plain
    assert tokens("qwen3-8b", "--max-running-requests", "7") == pytest.approx(plain, rel=0.01)
    tens = [tokens("qwen3-next-80b-a3b", "--tp-size", "4", "--max-running-requests", str(n)) for n in (8, 9, 10)]
    assert max(tens) - min(tens) < 0.05 * min(tens)
    assert tokens("qwen3-8b", "--kv-cache-dtype", "fp8_e4m3") == pytest.approx(2 * plain, abs=2)
