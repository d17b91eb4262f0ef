"""Engines by name, below one folder.

Source: docs/guides/embedding.md.
"""

from __future__ import annotations

import os
import re

from storage.errors import InvalidRequest

# Lower case only: on some file systems A and a are the same folder. No dots, so that no name leaves the folder.
_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def keyed_path(root: str | os.PathLike[str], name: str) -> str:
    """The directory of the engine with this name. Raises InvalidRequest for an invalid name."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest("The name of an engine is 1 to 64 characters from a-z 0-9 _ -.", field="name")
    return os.path.join(os.fspath(root), name)
