"""`python -m pipeline`: export topics, and verify or compact exports."""

from __future__ import annotations

import sys

#: Packages of the extra that every command needs.
_EXTRA = ("numpy", "pyarrow")

try:
    from pipeline.cli import main
except ModuleNotFoundError as error:
    if error.name not in _EXTRA:
        raise
    sys.exit(f"{error.name} is missing. Install the extra `pipeline`: pip install 'topics-broker[pipeline]'")

if __name__ == "__main__":
    main()
