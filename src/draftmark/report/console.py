"""What the terminal reports have in common: text that is safe to print, hanging indents, quiet styles.

Nothing relies on colour: a style only repeats what a word or a mark already says. Foreign text is never parsed as
rich markup.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# Where the encoding is poor: dashes, the middle dot, the ellipsis, the apostrophe.
ASCII = str.maketrans({"\u2013": "-", "\u2014": "-", "\u00b7": ",", "\u2026": "...", "\u2019": "'"})


def fit_encoding(text: str, console: Console) -> str:
    """The text as the console's encoding can carry it, so that printing never fails."""
    encoding = console.encoding
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return text


def line(console: Console, text: str = "", style: str = "") -> None:
    """One paragraph, wrapped at words."""
    hanging(console, "", text, style)


def raw_line(console: Console, text: str, style: str = "") -> None:
    """One line left whole, so that it can be copied: a path, a command, a log line."""
    shown = Text(fit_encoding(text, console), style=style)
    console.print(shown, soft_wrap=True)


def hanging(console: Console, lead: str, text: str, style: str = "", *, whole_words: bool = False) -> None:
    """A paragraph whose further lines stand under its first word: `warning: ...`.

    `style` is for the lead; without one, for the paragraph. With `whole_words` a word too long for the line, like
    a path, stays whole, so that it can be copied and searched for.
    """
    lead = fit_encoding(lead, console)
    body = Text(fit_encoding(text, console), style="" if lead else style)
    room = max(20, console.width - cell_len(lead))
    for place, part in enumerate(body.wrap(console, room, overflow="ignore" if whole_words else "fold")):
        part.rstrip()
        shown = Text(lead if place == 0 else " " * cell_len(lead), style=style if place == 0 else "")
        console.print(shown.append_text(part), soft_wrap=whole_words)


def heading(console: Console, text: str) -> None:
    """A blank line and a title."""
    console.print()
    line(console, text, "bold")
