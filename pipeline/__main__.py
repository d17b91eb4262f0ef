"""`python -m pipeline`: export topics, and look after what was exported."""

from __future__ import annotations

from pipeline.cli import main

if __name__ == "__main__":
    main()
