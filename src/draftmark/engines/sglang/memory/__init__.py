"""The memory arithmetic of SGLang, by version: what fits, told before a start."""
