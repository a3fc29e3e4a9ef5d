"""What all tests rely on, however they were started."""

from __future__ import annotations

import signal

import pytest
from hypothesis import is_hypothesis_test, settings

# The gate tries the same few examples each time: luck judges no change. `make explore` tries new ones, and more.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")

# A run in the background (`make test &`, some CI) has SIGINT ignored, and hands that down: tests of Ctrl-C would
# wait for what never comes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Property tests are not traced: it triples their time, and what only chance reaches counts as untested."""
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.no_cover)
