"""`python -m topics_client worker MODULE:NAME`: runs a Worker of a module, with logs and metrics.

It needs nothing beyond the client itself.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence

from topics_client.errors import InvalidRequest, TopicsError
from topics_client.workers.exposition import Exposition
from topics_client.workers.log import NAME, JsonLines
from topics_client.workers.reloading import reload
from topics_client.workers.worker import Worker

#: Like the `topics` command: an error of the user, and a broker that refuses or is away.
_USAGE, _FAILED = 2, 1


def main(arguments: Sequence[str]) -> int:
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m topics_client worker",
        description="Do the jobs of queues with the handlers of a Worker, until SIGTERM or Ctrl-C.",
    )
    parser.add_argument("worker", metavar="MODULE:NAME", help="a Worker in a module that can be imported from here")
    parser.add_argument(
        "--reload",
        action="store_true",
        help="for development: restart when a Python file below this folder changes",
    )
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="serve metrics for Prometheus at /metrics")
    parser.add_argument(
        "--metrics-host", default="127.0.0.1", metavar="ADDRESS", help="address for that (default: %(default)s)"
    )
    parser.add_argument("--log-format", choices=("console", "json"), default="console", help="default: %(default)s")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    if options.reload:
        return reload([each for each in arguments if each != "--reload"])
    _log_to_stderr(options.log_format, options.log_level.upper())
    try:
        worker = find(options.worker)
        if options.metrics_port is not None:
            Exposition(worker).serve(options.metrics_host, options.metrics_port)
        worker.run()
    except (InvalidRequest, OSError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return _USAGE
    except TopicsError as error:
        sys.stderr.write(f"Error: {error}\n")
        return _FAILED
    return 0


def find(name: str) -> Worker:
    """The worker with the name MODULE:NAME, also from this folder. Raises InvalidRequest."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InvalidRequest(f"{name!r} is not MODULE:NAME, like shop.mails:worker.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Not for a module that this one imports: its traceback says more.
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise InvalidRequest(f"There is no module {module}.") from error
    worker = getattr(found, attribute, None)
    if not isinstance(worker, Worker):
        raise InvalidRequest(f"{attribute} of {module} is not a Worker.")
    return worker


def _log_to_stderr(form: str, level: str) -> None:
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Otherwise every call of the broker would be a line.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger(NAME).setLevel(level)
