"""What a Hugging Face config.json says of a model's memory: layers by kind, widths, weights by part.

For any engine: `read_shape` reads a parsed config.json, `read_model` a directory with whatever lies beside it,
exact sizes of weights among them. The bytes of KV caches and states are each engine's own affair.
"""

from draftmark.engines.model_config.checkpoint import Model, read_model
from draftmark.engines.model_config.fields import UnknownArchitectureError
from draftmark.engines.model_config.quantization import Quantization
from draftmark.engines.model_config.read import read_shape
from draftmark.engines.model_config.safetensors import (
    StoredWeights,
    from_safetensors_headers,
    from_safetensors_index,
)
from draftmark.engines.model_config.shape import AttentionLayers, LinearLayers, ModelShape
from draftmark.engines.model_config.weights import Share, Weights

__all__ = [
    "AttentionLayers",
    "LinearLayers",
    "Model",
    "ModelShape",
    "Quantization",
    "Share",
    "StoredWeights",
    "UnknownArchitectureError",
    "Weights",
    "from_safetensors_headers",
    "from_safetensors_index",
    "read_model",
    "read_shape",
]
