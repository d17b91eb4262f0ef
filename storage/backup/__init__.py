"""Copies a data directory in use into a backup, and makes a new data directory of one (docs/adr/0027)."""
