"""`python -m topics_client` is the `topics` program."""

from __future__ import annotations

import importlib.util
import sys

if importlib.util.find_spec("typer") is None:
    sys.exit("The topics command needs the extra cli: install topics-client[cli].")

from topics_client.cli import main

main()
