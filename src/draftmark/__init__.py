"""Draftmark: finds the speculative-decoding depth of a live LLM server, safely."""

__version__ = "0.1.0"
