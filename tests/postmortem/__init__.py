"""Tests of the post-mortem."""
