"""How many bytes a quantized matrix takes, by the way it is packed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to store a matrix of `rows` outputs and `columns` inputs.

    Attributes:
        bits: Of one weight.
        group: Inputs that share a scale; None when there are none of that kind; 0 for all inputs of a row.
        group_rows: Outputs that share it.
        scale_bytes: Of one such scale.
        zero_bits: Of one zero point, which comes with each scale.
        row_bytes: Beside that, an output.
        column_bytes: Beside that, an input.
        matrix_bytes: Beside that, once.
        nested: bitsandbytes' double quantization: scales of a byte in blocks of 256, each with a float of its own.
    """

    name: str
    bits: int
    group: int | None = None
    group_rows: int = 1
    scale_bytes: int = 0
    zero_bits: int = 0
    row_bytes: int = 0
    column_bytes: int = 0
    matrix_bytes: int = 0
    nested: bool = False

    def bytes(self, rows: int, columns: int) -> int:
        """Of such a matrix, with all that belongs to it."""
        total = -(-rows * columns * self.bits // 8) + self.matrix_bytes
        total += rows * self.row_bytes + columns * self.column_bytes
        if self.group is None:
            return total
        scales = -(-rows // self.group_rows) * -(-columns // (self.group or columns))
        total += scales * self.scale_bytes + -(-scales * self.zero_bits // 8)
        return total + (-(-scales // 256) * 4 if self.nested else 0)


def fp8(block: tuple[int, int] | None = None, *, static: bool = False, channel: bool = False) -> Scheme:
    """8-bit floats: a scale a block (rows, columns), a channel or a tensor; a static one has its input's too."""
    if block:
        return Scheme(name="fp8 block", bits=8, group=block[1], group_rows=block[0], scale_bytes=4)
    if channel:
        return Scheme(name="fp8 channel", bits=8, row_bytes=4)
    return Scheme(name="fp8", bits=8, matrix_bytes=8 if static else 4)


def integer(bits: int, group: int, *, zeros: bool, act_order: bool = False) -> Scheme:
    """Packed integers with 16-bit scales a group: AWQ, GPTQ (with an index an input), compressed-tensors."""
    return Scheme(
        name=f"int{bits}",
        bits=bits,
        group=max(group, 0),  # -1 in the files: one scale for all inputs
        scale_bytes=2,
        zero_bits=bits if zeros else 0,
        column_bytes=4 if act_order else 0,
    )


def channel_integer() -> Scheme:
    """8-bit integers with a float scale an output."""
    return Scheme(name="int8 channel", bits=8, row_bytes=4)


def microscaled(bits: int) -> Scheme:
    """OCP MX formats: blocks of 32 share an 8-bit exponent."""
    return Scheme(name=f"mxfp{bits}", bits=bits, group=32, scale_bytes=1)


def nvfp4(group: int = 16) -> Scheme:
    """NVIDIA's 4-bit floats: 8-bit scales a block of 16, and a float each for weight and input."""
    return Scheme(name="nvfp4", bits=4, group=group, scale_bytes=1, matrix_bytes=8)


def bnb4(*, double: bool) -> Scheme:
    """The 4 bits of bitsandbytes, in blocks of 64; tables of floats and a JSON lie beside each matrix."""
    if double:
        return Scheme(name="bnb4", bits=4, group=64, scale_bytes=1, matrix_bytes=4 * (16 + 256) + 172, nested=True)
    return Scheme(name="bnb4", bits=4, group=64, scale_bytes=4, matrix_bytes=4 * 16 + 100)
