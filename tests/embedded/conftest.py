"""Caches and indexes as fixtures."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from draftmark.embedded.provision import provision

from .fakes import Filled, Index, Recorder, build_index, use


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """A fresh index and an empty cache."""
    built = build_index(tmp_path / "index", tmp_path / "cache")
    use(built, monkeypatch)
    return built


@pytest.fixture(scope="session")
def first_filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A cache that was filled through pip, once."""
    base = tmp_path_factory.mktemp("filled")
    built = build_index(base / "index", base / "cache")
    seen = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        use(built, patch)
        ready = provision(seen, pins=built.pins)
    return Filled(built, ready, seen)


@pytest.fixture
def filled(first_filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """A copy of a filled cache, on a machine whose pip reaches no index."""
    cache = tmp_path / "cache"
    shutil.copytree(first_filled.index.cache, cache)
    shutil.copytree(first_filled.index.directory, tmp_path / "index")
    copy = replace(first_filled.index, directory=tmp_path / "index", cache=cache)
    use(copy, monkeypatch, find_links=tmp_path / "nowhere")
    return copy
