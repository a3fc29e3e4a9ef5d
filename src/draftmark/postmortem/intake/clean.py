"""Makes text of what terminals and broken writers leave in logs."""

from __future__ import annotations

import re

# CSI sequences (colours, erases, cursor moves), OSC up to its end, charset choices, and single escapes.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?"
    r"|[()*+][0-9A-Za-z]|[@-Z\\^_=>78cNO])|\x9b[0-?]{0,64}[@-~]"
)
# Escapes that a pager or a syslog daemon turned into text.
_CARETS = re.compile(r"(?:\^\[|#033)\[[0-9;]{0,32}m")
# Colours whose escape character a web page lost: only where one is set and reset in the same line.
_SGR = r"(?:[1-9]|[349]\d|10[0-7]|[01];\d{1,3}|[34]8;[25];\d[\d;]{0,12})m"
_ESCAPED = r"(?<!\\u001[bB])(?<!\\x1[bB])(?<!\\033)(?<!\\e)"  # still in JSON or in a repr
_BARE_SET = _ESCAPED + r"\[" + _SGR
_BARE = _ESCAPED + r"\[(?:" + _SGR + r"|(?:0|2[1-9]|39|49)m)"
_TAB = {9: " "}
_CONTROL_SPACES = "\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029"

# The end of a progress bar that no newline ended, where the next record follows on the same line.
_BAR_END = re.compile(
    r"(?:it/s|s/it|B/s|tokens/s|ex/s)(?:, [^\]\[]{0,120})?\](?=\S)"
    r"|\| \d{1,9}/\d{1,9} \[[^\]\[]{1,80}\](?=\S)"
)


def clean(line: str) -> str:
    """Without escapes and NULs; other control characters stay until `printable`."""
    if "\x1b" in line or "\x9b" in line:
        line = _ESCAPES.sub("", line)
    if "[" in line and ("^[[" in line or "#033[" in line):
        line = _CARETS.sub("", line)
    if "[0m" in line and (found := re.search(_BARE_SET, line)) and found.start() < line.rfind("[0m"):
        line = re.sub(_BARE, "", line)
    return line.replace("\x00", "") if "\x00" in line else line


def printable(line: str, width: int) -> str:
    """At most `width` characters that any terminal can show: what is left of control characters is replaced."""
    if len(line) > width:
        line = line[:width]
    if line.isprintable() or line.translate(_TAB).isprintable():
        return line
    return "".join(map(_visible, line))


def _visible(char: str) -> str:
    if char == "\t" or char.isprintable():
        return char
    return " " if char.isspace() and char not in _CONTROL_SPACES else "" if char == "\x00" else "\ufffd"


def parts(line: str) -> list[str]:
    """The pieces between carriage returns that hold something; a record after a progress bar is one of its own."""
    pieces = ([piece for piece in line.split("\r") if piece] or [""]) if "\r" in line else [line]
    if "%|" not in line and "it/s" not in line and "s/it" not in line:
        return pieces
    split: list[str] = []
    for piece in pieces:
        at = 0
        for match in _BAR_END.finditer(piece):
            split.append(piece[at : match.end()])
            at = match.end()
        split.append(piece[at:])
    return [piece for piece in split if piece] or [""]
