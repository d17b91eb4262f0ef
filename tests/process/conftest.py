"""What the tests of whole processes share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def dice() -> random.Random:
    """Chance that follows the seed of the run, which pytest prints."""
    return random.Random(random.getrandbits(64))
