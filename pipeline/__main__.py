"""`python -m pipeline`: export topics, and look after what was exported."""

from __future__ import annotations

import sys

#: What the extra brings that every command needs.
_EXTRA = ("numpy", "pyarrow")

try:
    from pipeline.cli import main
except ModuleNotFoundError as error:
    if error.name not in _EXTRA:
        raise
    sys.exit(f"Without {error.name}: the pipeline needs the extra `pipeline`: pip install 'topics-broker[pipeline]'")

if __name__ == "__main__":
    main()
