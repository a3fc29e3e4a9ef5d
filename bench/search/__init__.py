"""Searches of recorded surfaces, side by side: `python -m bench.search`."""
