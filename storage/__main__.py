"""`python -m storage dump|verify DIR`: read any data directory, live or not, without changing it.

`backup`, `restore`, `cells` and `cluster`: see `storage.offline.commands`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from storage import StorageError
from storage.inspect import LEGEND, DataDirectory, DumpOptions, Finding, NoSuchFile, NotADataDirectory, dump, verify
from storage.offline.commands import add_to, run
from storage.platform import PosixFileSystem, cell_folder, read_set

OK, WRONG, USAGE = 0, 1, 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m storage",
        description="Look into a data directory, or back one up. dump and verify write nothing and take no lock: "
        "a broker may be running on it.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="dump|verify|backup|restore|cells|cluster")
    show = commands.add_parser(
        "dump",
        help="show the contents of the log, the snapshots and the segments",
        description="Show snapshots, every frame of the log, in its order, and every record in segments.",
        epilog=f"{LEGEND}. A topic_id is followed by the topic's name where it is known. seq - marks a control frame.",
    )
    show.add_argument("--json", action="store_true", help="one JSON object a line instead of columns")
    show.add_argument(
        "--file", metavar="NAME", help="only this file: its path in DIR, its name, or a pattern like '*0002.log'"
    )
    show.add_argument("--topic", metavar="NAME", help="only frames of this topic: its name or its topic_id")
    show.add_argument("--data", action="store_true", help="whole records (default: their beginning; none with --json)")
    check = commands.add_parser(
        "verify",
        help="check every file and say what is wrong where",
        description="Check every file: checksums, batches, sync points, the order of seqs, snapshots, segments. "
        "A torn end, as a crash leaves it, is a note; damage is a problem.",
        epilog="Exit code: 0 nothing wrong; 1 a problem was found, or a file cannot be read; "
        "2 wrong usage, or not a data directory.",
    )
    for command in (show, check):
        command.add_argument(
            "directory",
            metavar="DIR",
            help="the data directory: the one that holds the file FORMAT, or that of a set of cells",
        )
    add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.command in ("backup", "restore", "cells", "cluster"):
        return run(options)
    try:
        found = read_set(PosixFileSystem(), options.directory)
        if found is None:
            return _look(options, options.directory)
        codes: list[int] = []
        for cell in range(found.cells):
            if not getattr(options, "json", False):
                print(f"cell {cell}:")
            codes.append(_look(options, cell_folder(options.directory, cell)))
        return max(codes)
    except (NotADataDirectory, NoSuchFile) as error:
        print(error, file=sys.stderr)
        return USAGE
    except StorageError as error:
        print(error.message, file=sys.stderr)
        return WRONG
    except OSError as error:
        print(f"Cannot read {error.filename or options.directory}: {error.strerror}.", file=sys.stderr)
        return WRONG


def _look(options: argparse.Namespace, path: str) -> int:
    directory = DataDirectory(PosixFileSystem(), path)
    if options.command == "verify":
        return _verify(directory)
    dump(directory, DumpOptions(options.file, options.topic, options.json, options.data), print)
    return OK


def _verify(directory: DataDirectory) -> int:
    progress = _Progress()
    verdict = verify(directory, lambda finding: progress.above(lambda: print(_sentence(finding))), progress.show)
    progress.clear()
    print(verdict.summary())
    return WRONG if verdict.wrong else OK


def _sentence(finding: Finding) -> str:
    where = finding.path if finding.offset is None else f"{finding.path} at offset {finding.offset}"
    return f"{'PROBLEM' if finding.problem else 'note'}: {where}: {finding.text}"


class _Progress:
    """A progress line on stderr, if it is a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._percent = -1

    def show(self, done_bytes: int, total_bytes: int) -> None:
        percent = min(100, done_bytes * 100 // max(1, total_bytes))
        if self._live and percent != self._percent:
            self._percent = percent
            print(f"\rchecking: {percent} %", end="", file=sys.stderr, flush=True)

    def above(self, output: Callable[[], None]) -> None:
        """Print something without mixing it with the line."""
        self.clear()
        output()

    def clear(self) -> None:
        if self._live and self._percent >= 0:
            self._percent = -1
            print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # The reader of the output (head, less) has ended: end without a message, like other filters.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
