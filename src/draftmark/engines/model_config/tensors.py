"""Weights by name and shape, as a checkpoint holds them: what the bill is added up from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Part = Literal[
    "embedding", "lm_head", "attention", "linear_attention", "mlp", "experts", "router", "norms",
    "mtp", "mtp_copies", "vision", "draft",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight, or `count` alike.

    Attributes:
        name: Without what a checkpoint puts before it (`model.`): `layers.3.self_attn.q_proj`. `*` stands for an
            expert's number.
        rows: Outputs; a vector's length.
        columns: Inputs; 1 for a vector.
        linear: A matrix that a layer multiplies by: what quantization is about.
        pieces: How many ranks of a tensor-parallel group can have a piece of their own: 1 when each has all of it,
            0 when any number can. Key and value projections end at the number of heads.
        itemsize: Bytes an element where it is not the model's type.
    """

    part: Part
    name: str
    rows: int
    columns: int = 1
    count: int = 1
    linear: bool = False
    pieces: int = 1
    itemsize: int | None = None

    @property
    def parameters(self) -> int:
        """How many elements, all alike together."""
        return self.rows * self.columns * self.count


def linear(part: Part, name: str, rows: int, columns: int, *, bias: bool = False, count: int = 1, pieces: int = 0
) -> Iterator[Tensor]:  # fmt: skip
    """A projection, with its bias when it has one."""
    yield Tensor(part, name, rows, columns, count, linear=True, pieces=pieces)
    if bias:
        yield Tensor(part, f"{name}.bias", rows, 1, count, pieces=pieces)


def norm(name: str, width: int) -> Tensor:
    """The weight of an RMS norm."""
    return Tensor("norms", name, width)


def under(prefix: str, tensors: Iterable[Tensor], part: Part | None = None) -> Iterator[Tensor]:
    """The same, a level deeper, and counted as `part` when one is given."""
    for each in tensors:
        name = f"{prefix}.{each.name}"  # `replace` would take thrice as long, a thousand times
        yield Tensor(
            part or each.part, name, each.rows, each.columns, each.count, each.linear, each.pieces, each.itemsize
        )
