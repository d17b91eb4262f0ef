"""Measures the broker and the engine: how fast, at what cost, and whether everything acknowledged is there."""
