"""The load generator of an engine, without the engine: `python alone.py vllm|sglang ARGUMENTS`.

Both are modules of packages that import torch and gigabytes more, of which a client uses nothing. Installed with
`pip install --no-deps`, and run by this, they need none of it: the packages' own `__init__` is left out, and what
the bench modules name of the engine but do not use for a load of text is a stand-in. What sends the requests, reads
the answers and computes the figures is theirs, untouched; it starts sooner than with the engine.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

KEPT = {
    "vllm": (
        *("vllm.benchmarks", "vllm.tokenizers", "vllm.utils", "vllm.envs", "vllm.version", "vllm.logger"),
        *("vllm.logging_utils", "vllm.transformers_utils.repo_utils", "vllm.transformers_utils.utils"),
    ),
    "sglang": ("sglang.benchmark", "sglang.srt.utils.network"),
}
HOLLOW = ("vllm.utils", "vllm.transformers_utils", "sglang.srt", "sglang.srt.utils")
"""Packages of which modules are real while their `__init__` is left out."""


class StandIn(ModuleType):
    """A module that has every name: classes that can be named, derived from, and called to no effect."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__new__": lambda *_args, **_options: None})


class Engine(MetaPathFinder, Loader):
    """Finds the modules of one engine that are not to be loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a hollow package the place of its modules; of what is not kept a stand-in; else Python finds it."""
        if not name.startswith(self.name + "."):
            return None
        if name in HOLLOW:
            spec = ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [f"{place}/{name.rpartition('.')[2]}" for place in path or ()]
            return spec
        return None if name.startswith(KEPT[self.name]) else ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """What stands in."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


def main() -> None:
    name = sys.argv.pop(1)
    found = importlib.util.find_spec(name)
    if found is None or found.submodule_search_locations is None:
        raise SystemExit(f"{name} is not installed")
    top = ModuleType(name)
    top.__path__ = list(found.submodule_search_locations)
    top.__spec__ = found
    sys.modules[name] = top
    sys.meta_path.insert(0, Engine(name))
    if name == "sglang":
        importlib.import_module("sglang.benchmark.serving").cli_main()
        return
    serve = importlib.import_module("vllm.benchmarks.serve")
    parser = argparse.ArgumentParser(prog="vllm bench serve")
    serve.add_cli_args(parser)
    serve.main(parser.parse_args())


if __name__ == "__main__":
    main()
