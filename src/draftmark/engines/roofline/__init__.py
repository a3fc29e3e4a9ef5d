"""The roofline of a decode round: bytes, operations, the time it takes at least, and what bounds it. Pure.

docs/roofline.md has the formulas. `Roofline(Served(…)).round(concurrency, depth, context)`.
"""

from draftmark.engines.cards import Card, card_of
from draftmark.engines.roofline.document import document
from draftmark.engines.roofline.measured import Measured, measured_rounds
from draftmark.engines.roofline.passes import distinct_experts
from draftmark.engines.roofline.rounds import Roofline, Round, Share
from draftmark.engines.roofline.served import DraftKind, Served
from draftmark.engines.roofline.words import sentences

__all__ = [
    "Card",
    "DraftKind",
    "Measured",
    "Roofline",
    "Round",
    "Served",
    "Share",
    "card_of",
    "distinct_experts",
    "document",
    "measured_rounds",
    "sentences",
]
