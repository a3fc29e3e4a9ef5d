"""What `draftmark sim` says of words that it cannot use."""

from __future__ import annotations

import pytest

from draftmark.cli.main import main

SMALL = ("--model", "smollm2-135m")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sglang-version", "0.4.0"), "'0.4.0' is not simulated: 0.5.10 to 0.5.23 are"),
        (("--sglang-version", "latest"), "'latest' is not simulated"),
        (("--speed", "-1"), "'-1' is no number from 0 up"),
        (("--gpus", "4xfoo"), "--gpus 4xfoo: neither a known card nor a size"),
        (("--mem-fraction-static", "0.8"), "SGLang's own flags stand behind --"),
        (("--", "--port", "99999"), "--port 99999 is none"),
    ],
)
def test_what_cannot_be_used_is_one_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["sim", *SMALL, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "next: " in error
