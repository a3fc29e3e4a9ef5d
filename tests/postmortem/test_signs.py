"""Every sign is found in lines as they are really written, by the right speaker, and not in a look-alike."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from draftmark.cli.compose_why import tables
from draftmark.postmortem.events import Event, read_events
from draftmark.postmortem.model import Line
from draftmark.postmortem.tables import Sign

from . import traffic

EXAMPLES: dict[str, dict[str, list[Any]]] = tomllib.loads(Path(__file__).with_name("signs.toml").read_text())
SIGNS = tables().signs
VOICES = frozenset(("app", "any", "systemd", "kernel", "oomd", "coredump", "sudo", "record"))
IDENTS = {
    "systemd": "systemd",
    "kernel": "kernel",
    "oomd": "systemd-oomd",
    "coredump": "systemd-coredump",
    "sudo": "sudo",
}
SHORT = {
    *("EXIT", "ERR!", "GB10", "Orin", "Thor", "died", "egra", "exec", "srv "),  # the shortest there is
    *(" D ", " D", "gloo", "RC:", ".so", "3. ", "RC=", "rc:", "rc=", "RAM "),
}


def spoken(text: str, ident: str) -> Line:
    return Line(source="x.log", number=1, text=text, raw=text, ident=ident)


def found(sign: Sign, text: str, ident: str | None = None) -> list[Event]:
    """What a line means, from the sign's own speaker unless another is named."""
    said = IDENTS.get(sign.voice, "") if ident is None else ident
    return read_events([spoken(text, said)], tables(), records=sign.voice == "record")


def _examples(key: str) -> Iterator[Any]:
    for sign in SIGNS:
        for entry in EXAMPLES.get(sign.id, {}).get(key, []):
            text, ident = (entry, None) if isinstance(entry, str) else (entry["text"], entry["ident"])
            yield pytest.param(sign, text, ident, id=f"{sign.id}: {text[:50]}")


def test_every_sign_has_examples_and_look_alikes() -> None:
    assert {sign.id for sign in SIGNS} - set(EXAMPLES) == set(), "write lines for it into signs.toml"
    assert not [name for name, entry in EXAMPLES.items() if not entry.get("is") or not entry.get("not")]


@pytest.mark.parametrize(("sign", "text", "ident"), list(_examples("is")))
def test_a_line_is_understood(sign: Sign, text: str, ident: str | None) -> None:
    assert sign.search(text), "the expression does not find it"
    assert [hint for hint in sign.hints if hint in text], "no hint stands in it, so it would never be looked at"
    events = found(sign, text, ident)
    if sign.only_in:
        assert sign.id not in {event.sign.id for event in events}, "it counts as an exception only"
    elif sign.role == "fault" and any(event.role == "noise" for event in events):
        pytest.fail("noise on the same line takes it away")
    else:
        assert sign.id in {event.sign.id for event in events}


@pytest.mark.parametrize(("sign", "text", "ident"), list(_examples("not")))
def test_a_look_alike_is_something_else(sign: Sign, text: str, ident: str | None) -> None:
    hit = sign.search(text) if sign.only_in else None
    assert hit is None
    assert sign.id not in {event.sign.id for event in found(sign, text, ident)}


@pytest.mark.parametrize(("sign", "text", "ident"), list(_examples("is")))
def test_only_the_right_speaker_counts(sign: Sign, text: str, ident: str | None) -> None:
    """A server that prints what systemd or the kernel would have said proves nothing, and the other way round."""
    if sign.voice == "any" or sign.only_in:
        return
    others = [*IDENTS.values()] if sign.voice == "app" else ["python3", *IDENTS.values()]
    for other in others:
        if other == IDENTS.get(sign.voice):
            continue
        events = read_events([spoken(text, other)], tables())
        assert sign.id not in {event.sign.id for event in events}, other


def test_names_are_unique() -> None:
    assert len({sign.id for sign in SIGNS}) == len(SIGNS)


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.id)
def test_a_sign_is_whole(sign: Sign) -> None:
    assert sign.voice in VOICES
    assert sign.strength in ("certain", "likely")
    assert sign.only_in in ("", "exception")
    assert sign.target in ("", "comm", "cgroup")
    assert sign.what or sign.role not in ("fault", "echo", "fatal", "child-exit", "exit", "stop", "teardown")
    assert bool(sign.cause) == (sign.role == "fault")
    assert sign.hints
    if sign.cause:
        assert sign.cause in tables().causes or sign.cause == "cuda-oom"


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.id)
def test_hints_are_worth_looking_for(sign: Sign) -> None:
    """A short hint stands in every other line; those that cannot be longer are listed."""
    assert not {hint for hint in sign.hints if len(hint) < 5} - SHORT


def test_message_ids_are_journalds() -> None:
    ids = [message_id for sign in SIGNS for message_id in sign.message_ids]
    assert ids
    assert len(set(ids)) == len(ids)
    assert all(len(message_id) == 32 and set(message_id) <= set("0123456789abcdef") for message_id in ids)


def test_a_message_id_is_enough() -> None:
    """Where the text is in another language, journald's identifier tells."""
    sign = tables().by_id["systemd.stopping"]
    line = Line(
        source="j", number=1, text="llm.service wird beendet", raw="", ident="systemd",
        fields={"MESSAGE_ID": sign.message_ids[0]},
    )  # fmt: skip
    assert [event.sign.id for event in read_events([line], tables())] == ["systemd.stopping"]


def test_noise_takes_the_faults_of_its_line_away() -> None:
    """Retraction names memory and is ordinary scheduling."""
    text = "KV cache pool is full. Retract requests. #retracted_reqs: 2. CUDA out of memory"
    assert {event.role for event in read_events([spoken(text, "")], tables())} == {"noise"}


SAMPLES = {
    "sglang": "[2026-03-02 10:00:00 TP0] server_args=ServerArgs(model_path='/srv/q')\n",
    "vllm": "(APIServer pid=1) INFO 03-02 10:00:00 vLLM API server version 0.11.0\n",
    "llama.cpp": "0.00.281.580 I srv  llama_server: loading model\n",
    "uvicorn": "INFO:     Started server process [1]\n",
}


@pytest.mark.parametrize("engine", SAMPLES)
def test_ordinary_traffic_is_no_failure(engine: str) -> None:
    rng = random.Random(engine)
    at = [datetime(2026, 3, 2, 10) + timedelta(seconds=second) for second in range(2000)]
    assert traffic.engine_of(SAMPLES[engine]) == engine
    lines = [spoken(text, "") for text in traffic.normal(SAMPLES[engine], at, rng)]
    lines += [spoken(text, "") for text in traffic.web(at, rng)]
    assert len(lines) == 4000
    allowed = {"traffic", "engine", "noise"}
    assert {event.sign.id for event in read_events(lines, tables()) if event.role not in allowed} == set()


def test_chores_of_a_host_are_no_failure() -> None:
    rng = random.Random(4)
    at = [datetime(2026, 3, 2, 10) + timedelta(seconds=second) for second in range(2000)]
    entries = traffic.chores(at, "gpu1", rng)
    lines = [spoken(entry.text, entry.ident) for entry in entries]
    assert {event.sign.id for event in read_events(lines, tables()) if event.role == "fault"} == set()
