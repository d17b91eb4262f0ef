"""`python -m topics_broker` and the command `topics-broker`: start the broker, as `python -m broker` does."""

from __future__ import annotations

import sys

from broker.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
