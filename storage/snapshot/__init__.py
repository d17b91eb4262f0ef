"""Metadata snapshots: what they hold, how they are written, and when the log behind them is trimmed."""
