"""The tier of a test is stated once: by its folder, or by a marker if it differs from the folder."""

from __future__ import annotations

import re
from typing import Final

from tests.conftest import FAST, SLOW, SLOW_FOLDERS
from tests.tidy.tree import Source

_MARK: Final = re.compile(rf"pytest\.mark\.({FAST}|{SLOW})\b")


def in_slow_folder(path: str) -> bool:
    """Whether the tests of a file are slow unless a marker says otherwise."""
    return path.startswith(tuple(f"{folder}/" for folder in SLOW_FOLDERS))


def tier_problems(source: Source) -> list[str]:
    """Markers of a test file that repeat its folder."""
    if source.folder != "tests" or not source.path.rpartition("/")[2].startswith("test_"):
        return []
    implied = SLOW if in_slow_folder(source.path) else FAST
    # A case marked `slow` may be in a test marked `fast`: then the marker is needed again.
    marks = set(_MARK.findall(source.text))
    if implied not in marks or len(marks) > 1:
        return []
    return [f"{source.path}: tests of this folder are {implied} without the marker `{implied}`"]
