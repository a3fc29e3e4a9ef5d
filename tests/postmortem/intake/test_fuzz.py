"""No bytes, however broken, make intake raise anything but `BadInputError`, or break what it promises."""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInputError
from draftmark.postmortem.intake import Hints, Limits, read_bytes, read_paths
from draftmark.postmortem.model import Kind, Source

HINTS = Hints(("Killed process", "out of memory", "é", "Error"))
TIGHT = Limits(whole_bytes=200, whole_lines=10, head_lines=3, tail_lines=4, hits_per_hint=3, last_hits=2)

PREFIXES = [
    *("Jun 02 03:10:16 h systemd[1]: ", "2026-06-02T03:10:16+0000 h k[2]: ", "[  155.090000] ", "<30>"),
    *(
        "[Tue Mar  3 10:00:00 2026] ",
        "3月 03 10:00:00 h kernel: ",
        "2026-03-02T10:00:00.123456789Z stderr P ",
        "vllm-1  | ",
    ),
    *(
        "[2026-03-02 10:00:00 DP0 TP0] ",
        "(EngineCore_DP0 pid=882) ",
        "ERROR 06-06 14:20:34 [core.py:708] ",
        "[rank5]:",
    ),
    *(
        "[E411 10:18:06.598287174 a.cpp:629] ",
        "0.00.281.580 I ",
        "time=2025-06-28T08:05:42.144-07:00 level=INFO msg=",
        "0: ",
    ),
    *(
        "\x1b[31m",
        "\x1b]0;",
        "\r",
        "\x00",
        "{",
        '{"log":"',
        '{"MESSAGE":',
        "[",
        "  File ",
        "Traceback (most recent call last):",
    ),
    *(
        "__CURSOR=",
        "\n",
        "\n",
        "Name:  ",
        "# HELP ",
        "Id=a\nResult=",
        "Killed process ",
        "100%|█| 1/1 [00:00<00:00, 1.0it/s]",
        '"',
        "}",
    ),
]
pieces = st.one_of(st.sampled_from(PREFIXES), st.text(max_size=20), st.sampled_from("[]{}() :=\"\\'0123456789\t"))
texts = st.lists(pieces, max_size=40).map("".join)
contents = st.one_of(
    texts.map(lambda text: text.encode("utf-8", "replace")),
    texts.map(lambda text: text.encode("utf-16", "replace")),
    st.binary(max_size=300),
)


def check(source: Source, content: bytes) -> None:
    """What every source promises."""
    numbers = [line.number for line in source.lines]
    assert all(1 <= number <= max(source.total_lines, 1) for number in numbers)
    assert source.kind is not Kind.UNUSABLE or (not source.lines and source.notes)
    for line in source.lines:
        assert len(line.text) <= 8000
        assert len(line.raw) <= 2000
        assert line.raw.replace("\t", " ").isprintable()
        assert "\x00" not in line.text
        assert "\n" not in line.text
        assert (line.time is None) == (line.clock == "")
        line.raw.encode()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(contents)
def test_any_bytes(content: bytes) -> None:
    check(read_bytes("x", content, hints=HINTS), content)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(contents, st.integers(min_value=1, max_value=64))
def test_any_bytes_read_as_if_they_were_many(content: bytes, size: int) -> None:
    blocks = (content[at : at + size] for at in range(0, len(content), size))
    check(read_bytes("x", blocks, hints=HINTS, limits=TIGHT), content)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from(["", "gz", "tar", "zip", "zst", "xz"]), st.data())
def test_any_damage_to_a_packed_file(tmp_path: Path, content: bytes, form: str, data: st.DataObject) -> None:
    start = {
        "": b"",
        "gz": b"\x1f\x8b\x08\x00",
        "tar": b"a" + b"\0" * 256 + b"ustar\x0000",
        "zip": b"PK\x03\x04",
        "zst": b"\x28\xb5\x2f\xfd",
        "xz": b"\xfd7zXZ\x00",
    }[form]
    whole = bytearray(gzip.compress(content * 20) if form == "gz" else start + content)
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 0xFF
    path = tmp_path / "x"
    path.write_bytes(whole)
    with contextlib.suppress(BadInputError):
        for source in read_paths([str(path)], hints=HINTS).sources:
            check(source, bytes(whole))


MEGABYTE = 1_000_000
BLOW_UPS: dict[str, Callable[[int], str]] = {
    "open brackets": lambda n: "[" * n,
    "open braces": lambda n: "{" * n,
    "spaces": lambda n: " " * n,
    "digits": lambda n: "1" * n,
    "dots": lambda n: "1." * (n // 2),
    "letters": lambda n: "a" * n,
    "escapes": lambda n: "\x1b[" * (n // 2),
    "titles": lambda n: "\x1b]" * (n // 2),
    "returns": lambda n: "\r" * n,
    "short parts": lambda n: "a\r" * (n // 2),
    "bars": lambda n: "%| 1/1 [it/s]" * (n // 13),
    "quotes": lambda n: 'time=1 msg="' + '\\"' * (n // 2),
    "pairs": lambda n: "time=1 " + "a=b " * (n // 4),
    "an array": lambda n: "[" + ",".join(['{"MESSAGE":"a","_PID":"1"}'] * (n // 27)) + "]",
    "nested lists": lambda n: '{"MESSAGE":' + "[" * n,
    "nested records": lambda n: '{"log":"' * (n // 8),
    "nested closed": lambda n: '{"a":' * (n // 6) + "}" * (n // 6),
    "prefixes": lambda n: "[2026-03-02 10:00:00] " * (n // 22),
    "carriers": lambda n: "vllm-1  | " * (n // 10),
    "short lines": lambda n: "a\n" * (n // 2),
    "empty lines": lambda n: "\n" * n,
    "records": lambda n: '{"log":"a","stream":"stderr","time":""}\n' * (n // 40),
    "cut lines": lambda n: "2026-03-02T10:00:00Z stderr P a\n" * (n // 32),
    "tracebacks": lambda n: "Traceback (most recent call last):\n" * (n // 36),
    "hints": lambda n: "Killed process" * (n // 14),
    "fields": lambda n: "__CURSOR=a\nMESSAGE=b\n\n" * (n // 22),
    "labels": lambda n: "a{" + 'b="c",' * (n // 6),
    "metrics": lambda n: "aaaaaaaaaaaaaaaaa{" * (n // 18),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", BLOW_UPS)
@pytest.mark.parametrize("limits", [Limits(), TIGHT], ids=["whole", "selected"])
def test_twice_the_input_takes_about_twice_the_time(name: str, limits: Limits) -> None:
    """Quadratic work shows in the ratio, on any machine: four times the input would take sixteen times as long."""
    taken = []
    for size in (MEGABYTE // 4, MEGABYTE):
        content = BLOW_UPS[name](size).encode()
        start = time.process_time()
        check(read_bytes("x", content, hints=HINTS, limits=limits), content)
        taken.append(time.process_time() - start)
    assert taken[1] < 10 * taken[0] + 0.5
