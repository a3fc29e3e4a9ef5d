"""HTML that is escaped unless it was made here. Text from a result is hostile until proven otherwise."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = {"br", "meta", "col", "hr"}


class Markup(str):
    """Text that is HTML already. Only `tag` and `join` make it, and the package's own files."""

    __slots__ = ()


Node = str | Markup | None


def escape(node: Node) -> Markup:
    """Foreign text as HTML; markup as it is; None as nothing."""
    if node is None:
        return Markup()
    return node if isinstance(node, Markup) else Markup(html.escape(node, quote=True))


def join(nodes: Iterable[Node], separator: str = "") -> Markup:
    """The nodes one after another, each escaped unless it is markup."""
    return Markup(separator.join(escape(node) for node in nodes))


def tag(tag_name: str, *children: Node, **attributes: str | bool | None) -> Markup:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None and False leave an attribute out."""
    said = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        said.append(f" {attribute}" if value is True else f' {attribute}="{escape(value)}"')
    opening = f"<{tag_name}{''.join(said)}>"
    return Markup(opening if tag_name in VOID else f"{opening}{join(children)}</{tag_name}>")
