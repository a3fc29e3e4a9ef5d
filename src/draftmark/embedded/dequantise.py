"""`python dequantise.py SOURCE TARGET`: write a GGUF file again with every tensor as F32.

Run as a script in a process of its own, with the gguf and numpy packages on PYTHONPATH: Draftmark itself depends on
neither, and the memory is given back. Tensor by tensor, a few rows at a time, so that memory is bounded by one F32
tensor. stdout carries `DONE TOTAL` in bytes, one line a tensor. The same source always gives the same bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import gguf
import numpy as np

_CHUNK_BYTES = 8 << 20
_REPLACED = ("general.architecture", "general.file_type", "general.quantization_version")


def rewrite(source: str, target: str) -> None:
    """Copy the metadata, then the tensors as F32."""
    reader = gguf.GGUFReader(source)
    architecture = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in _REPLACED:
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]  # GGUF lists the fastest dimension first
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), int(tensor.n_elements) * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    total = sum(int(tensor.n_elements) * 4 for tensor in reader.tensors)
    done = 0
    for tensor in reader.tensors:
        writer.write_tensor_data(as_f32(tensor))
        done += int(tensor.n_elements) * 4
        print(done, total, flush=True)  # noqa: T201  how a script tells its parent
    writer.close()


def as_f32(tensor: Any) -> Any:
    """One tensor's values, rows as they lie in the file."""
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    values = np.empty((rows.shape[0], int(tensor.n_elements) // rows.shape[0]), dtype=np.float32)
    step = max(1, _CHUNK_BYTES // (values.shape[1] * 4))
    for start in range(0, rows.shape[0], step):
        part = rows[start : start + step]
        values[start : start + step] = gguf.quants.dequantize(part, tensor.tensor_type)
    return values


if __name__ == "__main__":
    rewrite(sys.argv[1], sys.argv[2])
