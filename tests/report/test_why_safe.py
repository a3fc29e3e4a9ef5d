"""No secret leaves with a verdict, and no proof is lost to hiding."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from draftmark.postmortem.document import document
from draftmark.report.why_safe import safe
from draftmark.testing import verdicts

KEY = "sk-live-4f9a8b7c6d5e"


def everything(text: str) -> str:
    return msgspec.json.encode(document(safe(verdicts.everywhere(text)))).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"server_args=ServerArgs(api_key='{KEY}', port=1)",
        f"python3 -m sglang.launch_server --api-key {KEY} --port 1",
        f'"Env": ["HF_TOKEN={KEY}"]',
        f"Authorization: Bearer {KEY}",
        f"GET http://user:{KEY}@host/x",
    ],
)
def test_a_key_is_hidden_wherever_it_stands(text: str) -> None:
    assert KEY in text
    assert KEY not in everything(text)


def test_a_key_that_was_named_once_is_hidden_where_no_name_stands() -> None:
    text = f"launch --api-key {KEY} and later: 401 for {KEY}"
    assert KEY not in everything(text)


def test_proofs_stay_as_they_are() -> None:
    verdict = verdicts.stop_timeout()
    assert safe(verdict) == verdict
    assert safe(verdicts.unsettled()) == verdicts.unsettled()


def test_ordinary_pairs_do_not_hide_words_elsewhere() -> None:
    proof = replace(verdicts.TIMED_OUT, text="password: required1, max_tokens=17408, EOS token = 2")
    kept = safe(
        replace(verdicts.stop_timeout(), evidence=(proof,), summary="A password is required for 17408 tokens.")
    )
    assert "required1" not in kept.evidence[0].text
    assert kept.summary == "A password is required for 17408 tokens."


def test_names_of_the_taxonomy_and_figures_are_kept() -> None:
    kept = safe(verdicts.everywhere("--api-key stop-timeout-sigkill9 cgroup-oom"))
    assert kept.cause == "stop-timeout-sigkill"
    assert kept.ruled_out[0].cause == "cgroup-oom"
    assert kept.evidence[0].line == 7


def test_bytes_that_are_no_text_can_still_be_written() -> None:
    assert r"\udcff" in safe(verdicts.everywhere("a\udcffb")).summary
