"""`topics serve`: replaces this process with a broker."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

from topics_client.commands.declaring import Option
from topics_client.commands.terminal import ExitCode, fail


def serve(
    host: Annotated[
        str | None,
        Option("--host", metavar="ADDRESS", help="Address to listen on [default: $TOPICS_HOST, else 127.0.0.1]."),
    ] = None,
    port: Annotated[
        int | None,
        Option("--port", min=0, max=65535, help="Port to listen on, 0 = any free [default: $TOPICS_PORT, else 4000]."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        Option(
            "--data-dir",
            metavar="DIR",
            file_okay=False,
            help="Data directory, created if missing [default: $TOPICS_DATA_DIR, else ./data].",
        ),
    ] = None,
) -> None:
    """Start a broker here, until Ctrl-C.

    Every other setting is a TOPICS_... variable of the environment, which is passed to the broker unchanged.
    """
    # Looked up, not imported: this program works with any broker and does not include one.
    if importlib.util.find_spec("broker") is None:
        fail("The broker is not installed beside this program. Run: pip install topics-broker", ExitCode.USAGE)
    given = {"TOPICS_HOST": host, "TOPICS_PORT": port, "TOPICS_DATA_DIR": data_dir}
    environment = {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
    sys.stdout.flush()
    # In place of this process, so that signals, exit status and process id are those of the broker.
    os.execve(sys.executable, [sys.executable, "-m", "broker"], environment)
