"""SGLang's log, 0.5.10 to 0.5.23: how it started, what it served, how it ended. Its wording: `grammar.toml`."""

from __future__ import annotations

from draftmark.engines.sglang.log.reading import LineCount, SglangLog, read_log, read_log_file

__all__ = ["LineCount", "SglangLog", "read_log", "read_log_file"]
