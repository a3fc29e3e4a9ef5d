"""What `%` stands for. Against a real systemd: test_commandline_live."""

from __future__ import annotations

import pytest

from draftmark.service.systemd.pieces import text_of
from draftmark.service.systemd.quoting import next_word
from draftmark.service.systemd.specifiers import HostFacts, specifier_values, substituted

HOST = HostFacts(hostname="gpu1.lan", machine_id="m" * 32, boot_id="a-b-c", kernel="6.1", machine="x86_64")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llm.service", {"n": "llm.service", "N": "llm", "p": "llm", "i": "", "j": "llm", "f": "/llm"}),
        (
            "a-llm@7b-x.service",
            {"N": "a-llm@7b-x", "p": "a-llm", "i": "7b-x", "I": "7b/x", "j": "llm", "P": "a/llm"},
        ),
        (r"llm@q\x2d4\xc3\xa9.service", {"i": r"q\x2d4\xc3\xa9", "I": "q-4é", "f": "/q-4é"}),
    ],
)
def test_of_the_name(name: str, expected: dict[str, str]) -> None:
    known = specifier_values({"Id": name})
    assert {letter: known[letter] for letter in expected} == expected


def test_of_the_host() -> None:
    known = specifier_values({"Id": "x.service", "FragmentPath": "/etc/systemd/system/x.service"}, HOST)
    assert [known[c] for c in "HlqbvaShtUyY"] == [
        "gpu1.lan",
        "gpu1",
        "gpu1.lan",
        "abc",
        "6.1",
        "x86-64",
        "/var/lib",
        "/root",
        "/run",
        "0",
        "/etc/systemd/system/x.service",
        "/etc/systemd/system",
    ]


def test_of_a_user_manager_only_what_is_known_of_the_user() -> None:
    properties = {"Id": "x.service", "FragmentPath": "/home/u/.config/systemd/user/x.service"}
    assert not {"t", "h", "S", "u"} & set(specifier_values(properties, HOST))
    user = HostFacts(home="/home/u", uid="1000", user="u", environment={"XDG_RUNTIME_DIR": "/run/user/1000"})
    known = specifier_values(properties, user)
    assert [known[c] for c in "thuUCE"] == [
        "/run/user/1000",
        "/home/u",
        "u",
        "1000",
        "/home/u/.cache",
        "/home/u/.config",
    ]


@pytest.mark.parametrize(
    ("raw", "value", "known"),
    [
        ("%i/%%/%n", "7b/%/llm@7b.service", True),
        ("100%", "100%", True),
        ("%-%", "%-%", True),
        ("a%mb", "a%mb", False),
        ("%%i", "%i", True),
    ],
)
def test_in_a_word(raw: str, value: str, known: bool) -> None:
    word = next_word(raw, 0)
    assert word is not None
    pieces = substituted(word.pieces, specifier_values({"Id": "llm@7b.service"}))
    assert text_of(pieces) == value
    assert all(piece.known for piece in pieces) is known
    assert [(pieces[0].start, pieces[-1].end)] == [(0, len(raw))]
