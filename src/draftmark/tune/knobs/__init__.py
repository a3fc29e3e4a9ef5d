"""Searching further flags beside the depth."""
