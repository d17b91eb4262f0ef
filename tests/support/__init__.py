"""Replacements for the outside world, used by the tests: a disk that forgets unsynced writes, and a clock that tests
move."""
