"""`topics backup` and `topics restore`."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from click.exceptions import Exit

from topics_client import backup_calls
from topics_client.backup_calls import Backup
from topics_client.blocking import Client
from topics_client.commands.connection import JsonOption, broker
from topics_client.commands.declaring import Argument, Option
from topics_client.commands.reach import ANY, Reach
from topics_client.commands.terminal import (
    ExitCode,
    Grid,
    amount,
    complain,
    emit,
    fail,
    moment,
    note,
    printable,
    say,
    show,
    size,
)

_LOOK_EVERY_S = 0.2
#: The most topics whose heads are shown to people.
_SHOWN_HEADS = 20

ColdDirOption = Annotated[
    str,
    Option("--cold-dir", envvar="TOPICS_COLD_DIR", metavar="PLACE", help="The cold store: a path or a URL."),
]


def backup(
    directory: Annotated[
        str,
        Argument(
            metavar="DIR",
            help="Where to: a path on the broker's machine in its TOPICS_BACKUP_DIR, or a name below that.",
        ),
    ],
    include_cold: Annotated[bool, Option("--include-cold", help="Also copy the segments in the cold store.")] = False,
    data_dir: Annotated[
        Path | None,
        Option("--data-dir", metavar="DATA", help="Back up this directory, on which no broker runs."),
    ] = None,
    cold_dir: ColdDirOption = "",
    as_json: JsonOption = False,
    reach: Reach = ANY,
) -> None:
    """Back up all topics as of one instant, while the broker runs. In a set of cells, each has an instant of its own.

    DIR keeps the two newest backups; unchanged files of the last one are not copied again. The broker writes the
    backup: start it with TOPICS_BACKUP_DIR. If this program is interrupted, the broker continues the backup.
    """
    if data_dir is not None:
        options = ["--include-cold"] if include_cold else []
        _storage("backup", str(data_dir), directory, *options, cold_dir=cold_dir, as_json=as_json)
    with broker(reach, as_json) as client:
        found = client.run(backup_calls.begin_backup(directory, include_cold=include_cold))
        found = _wait(client, found)
        if found.error is not None:
            complain(found.error.message, as_json=as_json, code=found.error.code)
            raise Exit(ExitCode.REFUSED)
        if found.state != "done":
            fail("The broker was restarted before the backup was done.", ExitCode.REFUSED, as_json=as_json)
        if as_json:
            emit(msgspec.json.encode(found))
        else:
            _print(found)


def restore(
    source: Annotated[str, Argument(metavar="BACKUP", help="The backup directory.")],
    directory: Annotated[Path, Argument(metavar="DIR", help="The data directory to make: missing or empty.")],
    number: Annotated[int, Option("--number", min=0, metavar="N", help="This backup; 0 = the newest.")] = 0,
    cells: Annotated[
        int, Option("--cells", min=0, metavar="N", help="Cells of the restored set; 0 = as many as the backup has.")
    ] = 0,
    cold_dir: ColdDirOption = "",
    as_json: Annotated[bool, Option("--json", help="Output for programs, errors included.")] = False,
) -> None:
    """Restore a backup into a new data directory on this machine. Needs no broker.

    Every byte is checked before the directory can be used. The directory becomes a new cluster: readers of the original
    are told that its topics were created again, and start from their first records.
    """
    options = ["--number", str(number)] if number else []
    options += ["--cells", str(cells)] if cells else []
    _storage("restore", source, str(directory), *options, cold_dir=cold_dir, as_json=as_json)


def _storage(*arguments: str, cold_dir: str, as_json: bool) -> NoReturn:
    """Continue as the program for data directories."""
    # Looked up, not imported: this program works with any broker and does not include one.
    if importlib.util.find_spec("storage") is None:
        fail("The storage engine is not installed beside this program. Run: pip install topics-broker", ExitCode.USAGE)
    options: Sequence[str] = ["--cold-dir", cold_dir] if cold_dir else []
    sys.stdout.flush()
    command = [sys.executable, "-m", "storage", *arguments, *options, *(["--json"] if as_json else [])]
    os.execv(sys.executable, command)


def _wait(client: Client, found: Backup) -> Backup:
    live = sys.stderr.isatty()
    try:
        while found.state == "running":
            if live:
                percent = found.done_bytes * 100 // max(1, found.total_bytes)
                line = f"copying: {percent} % of {size(found.total_bytes)}"
                print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
            time.sleep(_LOOK_EVERY_S)
            found = client.run(backup_calls.get_backup())
    except KeyboardInterrupt:
        if live:
            print("\r\033[K", end="", file=sys.stderr)
        note("The broker continues the backup.")
        raise
    if live:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return found


def _print(done: Backup) -> None:
    if done.cells:
        first, last = min(each.taken_ms for each in done.cells), max(each.taken_ms for each in done.cells)
        instants = f"{amount(len(done.cells), 'cell')}, each as of an instant from {moment(first)} to {moment(last)}"
    else:
        instants = f"all topics as of {moment(done.taken_ms)}"
    say(f"Backup {done.number} is in {done.directory}: {instants}.")
    say(
        f"{size(done.copied_bytes)} copied, {size(done.reused_bytes)} re-used of earlier backups, "
        f"{amount(done.topics, 'topic')}, {amount(done.segments, 'segment')}, {done.seconds:.1f} s."
    )
    if done.referenced_segments:
        cold = f"{amount(done.referenced_segments, 'segment')} ({size(done.referenced_bytes)})"
        note(f"Not in it: {cold} in the cold store, which a restore will ask for (--include-cold copies them).")
    table = Grid("TOPIC", ">HEAD")
    shown = sorted(done.heads.items())[:_SHOWN_HEADS]
    for name, head in shown:
        table.add_row(printable(name), f"{head:,}")
    if shown:
        show(table)
    if len(done.heads) > len(shown):
        note(f"And {amount(len(done.heads) - len(shown), 'topic')} more: see --json.")
