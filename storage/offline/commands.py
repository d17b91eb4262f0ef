"""`python -m storage backup|restore|cells init|cluster …`: for data that no broker runs on."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any, TypeAlias

import msgspec
import structlog

from storage.backup import Summary
from storage.backup.restoring import Restored, restore
from storage.bucket import (
    BaseMissing,
    BaseTaken,
    CellMissing,
    ClockWrong,
    DamagedSlot,
    Fenced,
    GivenUp,
    StoreRefused,
    Unanswered,
)
from storage.cells.adopting import Adopted
from storage.cells.backing_up import back_up_set, is_backup_of_set, restore_set
from storage.cells.exporting import Exported
from storage.cells.founding import MadeCluster
from storage.cells.importing import Imported
from storage.cells.making import MadeSet, make_set
from storage.engine import Engine
from storage.errors import AlreadyLocked, InvalidRequest, OpenError, StorageError
from storage.offline import cluster
from storage.options import Options
from storage.platform import PosixFileSystem, read_set
from storage.segments.tiering import open_store

OK, WRONG, USAGE = 0, 1, 2
#: The number of topics whose heads are shown to people.
_SHOWN_HEADS = 20

#: What a command has done; lists are by cell.
Done: TypeAlias = "Summary | Restored | MadeSet | cluster.Done | list[Summary] | list[Restored]"
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    take = commands.add_parser(
        "backup",
        help="back up a data directory that no broker runs on",
        description="Back up the whole directory, incrementally. The backup directory keeps the two newest backups. "
        "For a running broker, use `topics backup`.",
    )
    take.add_argument("directory", metavar="DIR", help="the data directory")
    take.add_argument(
        "backup", metavar="BACKUP", help="the backup directory: empty, or with earlier backups of this data directory"
    )
    take.add_argument("--include-cold", action="store_true", help="also copy the segments in the cold store")
    make = commands.add_parser(
        "restore",
        help="make a data directory from a backup",
        description="Make a data directory from a backup. Every byte is checked before the directory can be used. It "
        "gets its own cluster id and epochs: readers of the original learn that its topics were created again.",
        epilog="Exit code: 0 restored; 1 not restored, and the directory is as it was; 2 wrong usage.",
    )
    make.add_argument("backup", metavar="BACKUP", help="the backup directory")
    make.add_argument("directory", metavar="DIR", help="the data directory to make: missing or empty")
    make.add_argument(
        "--cells",
        type=int,
        default=0,
        metavar="N",
        help="for the backup of a set: the number of cells, at least that of the backup",
    )
    make.add_argument("--number", type=int, default=0, metavar="N", help="this backup (default: the newest)")
    cells = commands.add_parser("cells", help="work on sets of cells", description="Work on sets of cells.")
    init = cells.add_subparsers(required=True, metavar="init").add_parser(
        "init",
        help="make a data directory the first cell of a set",
        description="Make a data directory that no broker runs on the first cell of a set, without copying its data. "
        "The number of cells is fixed from then on. An interrupted run is completed by the same command.",
    )
    init.add_argument("directory", metavar="DIR", help="the data directory")
    init.add_argument("--cells", type=int, required=True, metavar="N", help="the number of cells: 2 or more")
    cluster.add_to(commands)
    for command in (take, make, init):
        command.add_argument("--cold-dir", default="", metavar="PLACE", help="the cold store: a path or a URL")
        command.add_argument("--json", action="store_true", help="one JSON object instead of sentences")


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands; returns the exit code."""
    # The log events of the start and the stop are not part of the output of the command.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=_to_stderr)
    progress = _Progress()
    try:
        if arguments.command == "backup":
            done: Done = asyncio.run(_backup(arguments, progress))
        elif arguments.command == "cells":
            done = asyncio.run(_make_set(arguments))
        elif arguments.command == "cluster":
            done = cluster.run(arguments, progress)
        else:
            done = asyncio.run(_restore(arguments, progress))
    except InvalidRequest as error:
        return _complain(progress, arguments, error.message, error.code, WRONG)
    except AlreadyLocked as error:
        hint = "" if arguments.command != "backup" else " For a running broker, use `topics backup BACKUP`."
        return _complain(progress, arguments, error.message + hint, "in_use", WRONG)
    except ClockWrong as error:
        message = f"The clock of this machine is wrong, and would expire records: {error}. Set it (NTP)."
        return _complain(progress, arguments, message, "clock", WRONG)
    except (StoreRefused, Unanswered, GivenUp) as error:
        silent = f"The store does not answer ({error}). Run the command again when it does"
        message = str(error) if isinstance(error, StoreRefused) else silent
        return _complain(progress, arguments, f"{message}.", "store", WRONG)
    except (CellMissing, BaseMissing, DamagedSlot, BaseTaken, Fenced) as error:
        message = f"The objects changed meanwhile: {error}. Stop what writes to them, and run the command again."
        return _complain(progress, arguments, message, "in_use", WRONG)
    except StorageError as error:
        return _complain(progress, arguments, error.message, error.code, WRONG)
    except OSError as error:
        where = error.filename or getattr(arguments, "target", arguments.directory)
        return _complain(progress, arguments, f"{where}: {error}.", "io", WRONG)
    except ValueError as error:
        return _complain(progress, arguments, f"{error}.", "invalid_request", USAGE)
    except KeyboardInterrupt:
        return _complain(progress, arguments, "Interrupted.", "interrupted", 130)
    progress.clear()
    print(msgspec.json.encode(done).decode() if arguments.json else sentences(done))
    return OK


def _to_stderr(*_: Any) -> structlog.PrintLogger:
    return structlog.PrintLogger(sys.stderr)


async def _backup(arguments: argparse.Namespace, progress: _Progress) -> Summary | list[Summary]:
    fs, options = PosixFileSystem(), Options(cold_dir=arguments.cold_dir)
    if (found := read_set(fs, arguments.directory)) is not None:
        root, backup = _absolute(arguments.directory), _absolute(arguments.backup)
        return await back_up_set(fs, root, backup, found, options, include_cold=arguments.include_cold)
    if not fs.exists(f"{arguments.directory}/FORMAT"):
        raise OpenError(f"{arguments.directory} is not a data directory: it has no file named FORMAT.")
    async with Engine.open(arguments.directory, options) as engine:
        backup = asyncio.ensure_future(engine.backup(arguments.backup, include_cold=arguments.include_cold))
        try:
            while not (await asyncio.wait([backup], timeout=0.2))[0]:
                if engine.backups.progress is not None:
                    progress.show("copying", *engine.backups.progress)
        finally:
            backup.cancel()
        return await backup


async def _restore(arguments: argparse.Namespace, progress: _Progress) -> Restored | list[Restored]:
    fs = PosixFileSystem()
    cold = open_store(arguments.cold_dir, fs) if arguments.cold_dir else None
    if is_backup_of_set(fs, arguments.backup):
        return await restore_set(
            fs,
            _absolute(arguments.backup),
            _absolute(arguments.directory),
            cells=arguments.cells,
            number=arguments.number,
            cold=cold,
            progress=progress.show,
        )
    if arguments.cells:
        raise InvalidRequest("This is not a backup of a set: restore it, then run `cells init`.", field="cells")
    return restore(
        fs, arguments.backup, arguments.directory, number=arguments.number, cold=cold, progress=progress.show
    )


async def _make_set(arguments: argparse.Namespace) -> MadeSet:
    return await make_set(
        PosixFileSystem(), _absolute(arguments.directory), arguments.cells, Options(cold_dir=arguments.cold_dir)
    )


def _absolute(path: str) -> str:
    return os.path.abspath(path)


def sentences(done: Done) -> str:
    """The outcome in sentences, for people."""
    if isinstance(done, list):
        return "\n".join(map(sentences, done))
    if isinstance(done, MadeSet):
        return (
            f"{done.directory} is a set of {done.cells} cells. Its {done.topics} topics are in cell 0.\n"
            f"Start the broker with TOPICS_CELLS={done.cells}."
        )
    if isinstance(done, MadeCluster | Adopted | Imported | Exported):
        return cluster.sentences(done)
    if isinstance(done, Summary):
        lines = [
            f"Backup {done.number} is in {done.directory}.",
            f"  topics    {done.topics}",
            f"  segments  {done.segments}",
            f"  copied    {done.copied_bytes} bytes",
            f"  re-used   {done.reused_bytes} bytes of earlier backups",
        ]
        if done.referenced_segments:
            lines.append(f"  not in it {done.referenced_segments} cold segments, {done.referenced_bytes} bytes")
    else:
        lines = [
            f"Backup {done.number} of {done.backup} was restored into {done.directory}.",
            f"  cluster   {done.cluster_id}, before it was {done.original_cluster_id}",
            f"  topics    {done.topics}",
            f"  records   {done.records}",
            f"  copied    {done.bytes} bytes",
            f"  verified  {done.checked}",
        ]
    shown = sorted(done.heads.items())[:_SHOWN_HEADS]
    lines += [f"  head      {head} of {name}" for name, head in shown]
    if len(done.heads) > len(shown):
        lines.append(f"            and of {len(done.heads) - len(shown)} topics more: see --json")
    return "\n".join(lines)


def _complain(progress: _Progress, arguments: argparse.Namespace, message: str, code: str, status: int) -> int:
    progress.clear()
    if arguments.json:
        print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr)
    else:
        print(f"Error: {message}", file=sys.stderr)
    return status


class _Progress:
    """A progress line on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = ""

    def show(self, what: str, done: int, total: int) -> None:
        line = f"{what}: {min(100, done * 100 // max(1, total))} %"
        if self._live and line != self._shown:
            self._shown = line
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def tell(self, sentence: str) -> None:
        """Show a sentence, also if stderr is no terminal."""
        self.clear()
        print(sentence, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._live and self._shown:
            self._shown = ""
            print("\r\033[K", end="", file=sys.stderr, flush=True)
