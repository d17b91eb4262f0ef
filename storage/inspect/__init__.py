"""Reads any data directory without changing it: `dump` and `verify`."""
