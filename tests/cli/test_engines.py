"""Which engine a command line starts, and how it is asked."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import cast

import pytest

from draftmark.cli.engines import api_of, engine_named, known_engines, starts, version_of
from draftmark.errors import HostError
from draftmark.ports import Completed, Host

SGLANG = ("/opt/v/bin/python3", "-m", "sglang.launch_server", "--model-path", "m")
LLAMA = ("llama-server", "-m", "m.gguf")


def args(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**({"method": None, "engine": "auto", "api": None} | given))


class Elsewhere:
    """As much of a host as a version is looked for on."""

    def __init__(self, found: bytes | None) -> None:
        self.found = found
        self.asked: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], *, timeout_s: float = 20.0) -> Completed:
        self.asked.append(argv)
        if self.found is None:
            raise HostError("gone")
        return Completed(status=0, stdout=self.found)


@pytest.mark.parametrize(
    ("command", "name"), [(SGLANG, "sglang"), (LLAMA, "llamacpp"), (("vllm", "serve", "m"), None), ((), None)]
)
def test_an_engine_is_found_by_its_command_line(command: tuple[str, ...], name: str | None) -> None:
    found = starts(command, known_engines(args()))
    assert (found.name if found else None) == name


def test_the_version_is_looked_for_on_the_services_host() -> None:
    host = Elsewhere(b"/opt/v/lib/python3.12/site-packages/sglang-0.5.14.dist-info\n")
    engine = starts(SGLANG, known_engines(args(), cast(Host, host)))
    assert engine is not None
    assert version_of(engine, SGLANG) == "0.5.14"
    assert "/opt/v/lib/python3" in host.asked[0][-1]
    gone = starts(SGLANG, known_engines(args(), cast(Host, Elsewhere(None))))
    assert gone is not None
    assert version_of(gone, SGLANG) is None


@pytest.mark.parametrize(
    ("given", "command", "api"),
    [
        ({"engine": "sglang==0.5.12"}, SGLANG, "sglang"),
        ({"engine": "sglang==0.5.23"}, SGLANG, "sglang"),
        ({"engine": "sglang==0.5.10"}, SGLANG, "openai-chat"),
        ({}, SGLANG, "openai-chat"),  # its version is not known
        ({"engine": "sglang==0.5.23", "api": "openai"}, SGLANG, "openai"),
        ({}, LLAMA, "openai-chat"),
        ({"api": "openai"}, LLAMA, "openai"),
    ],
)
def test_the_api_that_tells_most_where_none_is_named(
    given: dict[str, object], command: tuple[str, ...], api: str
) -> None:
    engine = starts(command, known_engines(args(**given)))
    assert engine is not None
    assert api_of(args(**given), engine, command) == api


@pytest.mark.parametrize("text", ["auto", "xllamacpp", "llama-server", "sglang", "sglang==0.5.17"])
def test_engines_that_can_be_named(text: str) -> None:
    assert engine_named(text) == text


@pytest.mark.parametrize("text", ["", "vllm", "sglang==", "llama-server==1", "auto "])
def test_engines_that_cannot(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        engine_named(text)


def draftmark(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "draftmark", *words], capture_output=True, text=True, timeout=60)


CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"


def test_a_sweep_of_sglang_is_planned() -> None:
    service = f"cmd:python3 -m sglang.launch_server --model-path m --speculative-algorithm NEXTN {CHAIN}"
    words = ("--depth", "off,1,3,5", "--engine", "sglang==0.5.17", "--search", "grid", "--json")
    done = draftmark("plan", service, *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["engine"], document["baseline"]) == ("sglang", "d3")
    assert set(document["schedule"]) == {"off", "d1", "d3", "d5"}


def test_a_flag_that_is_gone_is_told_before_anything_is_started() -> None:
    service = "cmd:python3 -m sglang.launch_server --model-path m --cuda-graph-max-bs 8"
    done = draftmark("plan", service, "--engine", "sglang==0.5.20")
    assert done.returncode == 2
    assert "--cuda-graph-max-bs-decode" in done.stderr


def test_embedded_is_not_served_by_sglang() -> None:
    done = draftmark("plan", "embedded:", "--engine", "sglang==0.5.17")
    assert done.returncode == 2
    assert "embedded" in done.stderr
