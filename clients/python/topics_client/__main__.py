"""`python -m topics_client` is the `topics` program; `python -m topics_client worker` runs a Worker, without the extra
`cli`."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    """Imports only what the command needs."""
    if sys.argv[1:2] == ["worker"]:
        from topics_client.workers.command import main as work

        sys.exit(work(sys.argv[2:]))
    if importlib.util.find_spec("click") is None:
        sys.exit("The topics command needs the extra cli: install topics-client[cli].")
    from topics_client.cli import main as command

    command()


main()
