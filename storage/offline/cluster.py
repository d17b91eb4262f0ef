"""`python -m storage cluster init|adopt|import|export`: for clusters on which no node runs."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import TYPE_CHECKING, Protocol, TypeAlias

from storage.bucket import Bucket, Location, open_location, parse_location
from storage.cells.adopting import Adopted, adopt
from storage.cells.exporting import Exported, export_cluster
from storage.cells.founding import MadeCluster, make_cluster
from storage.cells.importing import Imported, import_directory
from storage.offline.telling import TellingBucket

if TYPE_CHECKING:
    from storage.offline.commands import Commands

Done: TypeAlias = "MadeCluster | Adopted | Imported | Exported"
_URL = "s3://bucket/prefix, gs://bucket/prefix or az://bucket/prefix"


class Shows(Protocol):
    """Shows what a command does."""

    def show(self, what: str, done: int, total: int) -> None: ...

    def tell(self, sentence: str) -> None: ...


def add_to(commands: Commands) -> None:
    """Add the commands to the command line."""
    cluster = commands.add_parser(
        "cluster",
        help="work on clusters",
        description="Work on clusters on which no node runs. Credentials come from the environment, like those of the "
        "cold store.",
    )
    several = cluster.add_subparsers(required=True, dest="cluster_command", metavar="COMMAND")
    init = several.add_parser(
        "init",
        help="make a cluster in a bucket",
        description="Check that the store does what a cluster needs, and make a cluster without data. The number of "
        "cells is fixed from then on. An interrupted run is completed by the same command. Credentials come from the "
        "environment, like those of the cold store.",
    )
    init.add_argument("directory", metavar="URL", help=_URL)
    init.add_argument("--cells", type=int, required=True, metavar="N", help="the number of cells: twice the nodes")
    init.add_argument(
        "--if-not-exists",
        action="store_true",
        help="succeed if there is a cluster with this number of cells; several may run this at the same time",
    )
    take = several.add_parser(
        "adopt",
        help="make a copy of a cluster's objects a cluster of its own",
        description="Make objects that were copied from another bucket or prefix a cluster of its own, with a new id. "
        "Nothing may write to them: no node, and no replication. All objects are checked first. The topics get new "
        "epochs, so readers of the original learn that they were created again: the copy may end earlier. Needs room "
        "for one cell on this machine. An interrupted run is completed by the same command.",
    )
    take.add_argument("directory", metavar="URL", help=f"where the copy is: {_URL}")
    take.add_argument(
        "--work-dir",
        default="",
        metavar="DIR",
        help="for the files of one cell; removed at the end (default: in TMPDIR)",
    )
    bring = several.add_parser(
        "import",
        help="make a cluster of a data directory",
        description="Make a cluster of a data directory or a set of cells that no broker runs on. It has as many cells "
        "as the set; a directory of one engine becomes one cell (`cells init` makes more of it first). Seqs, epochs, "
        "groups and leases stay. Start no broker on the directory again: the cluster does not see what that writes.",
    )
    bring.add_argument("directory", metavar="DIR", help="the data directory")
    bring.add_argument("url", metavar="URL", help=f"a prefix that nothing uses: {_URL}")
    fetch = several.add_parser(
        "export",
        help="make a data directory of a cluster",
        description="Make a data directory of a cluster whose nodes are stopped. It is a set of as many cells; one "
        "cell becomes the directory of one engine. Seqs, epochs, groups and leases stay, and so does the cluster.",
    )
    fetch.add_argument("directory", metavar="URL", help=_URL)
    fetch.add_argument("target", metavar="DIR", help="the directory to make: missing or empty")
    for command in (init, take, bring, fetch):
        command.add_argument("--json", action="store_true", help="one JSON object instead of sentences")


def run(arguments: argparse.Namespace, shows: Shows) -> Done:
    """Run one of them. Raises their errors; ValueError for a wrong URL."""
    given = arguments.url if arguments.cluster_command == "import" else arguments.directory
    try:
        location = parse_location(given)
    except ValueError as error:
        raise ValueError(f"URL: {error}") from None

    def open_store(location: Location) -> Bucket:
        return TellingBucket(open_location(location), tell)

    def tell(reason: str) -> None:
        shows.tell(f"No answer from {reason}. Trying again.")

    match arguments.cluster_command:
        case "init":
            return make_cluster(
                location,
                arguments.cells,
                shows.show,
                if_not_exists=arguments.if_not_exists,
                open_store=open_store,
            )
        case "adopt":
            folder = arguments.work_dir or os.path.join(os.environ.get("TMPDIR", "/tmp"), f"topics-adopt-{os.getpid()}")
            return asyncio.run(adopt(location, os.path.abspath(folder), shows.show, open_store=open_store))
        case "import":
            root = os.path.abspath(arguments.directory)
            return asyncio.run(import_directory(root, location, shows.show, open_store=open_store))
        case _:
            target = os.path.abspath(arguments.target)
            return asyncio.run(export_cluster(location, target, shows.show, open_store=open_store))


def _cells(count: int) -> str:
    return f"{count} cell" + ("s" if count > 1 else "")


def sentences(done: Done) -> str:
    """The outcome in sentences, for people."""
    if isinstance(done, MadeCluster):
        before = " already, and stays as it is" if done.existed else ""
        return (
            f"{done.url} is a cluster of {_cells(done.cells)}{before}.\n"
            f"Start a broker on each node with TOPICS_CLUSTER_URL={done.url}."
        )
    if isinstance(done, Adopted):
        return (
            f"{done.url} is a cluster of {_cells(done.cells)}. Its id is {done.cluster_id}; the objects were copied "
            f"from {done.original_cluster_id}.\nStart a broker on each node with TOPICS_CLUSTER_URL={done.url}."
        )
    if isinstance(done, Imported):
        return (
            f"{done.url} is a cluster of {_cells(done.cells)} with the {done.topics} topics and {done.records} records "
            f"of {done.directory}; {done.copied_bytes} bytes were copied.\n"
            f"Start a broker on each node with TOPICS_CLUSTER_URL={done.url}, and none on {done.directory} again."
        )
    start = "" if done.cells == 1 else f" TOPICS_CELLS={done.cells}"
    lines = [
        f"{done.directory} has the {_cells(done.cells)} of {done.url}; {done.copied_bytes} bytes were copied.",
        f"Start the broker with TOPICS_DATA_DIR={done.directory}{start}.",
    ]
    if done.crashed:
        cells = ", ".join(map(str, done.crashed))
        lines.append(
            f"Not stopped cleanly: cell {cells}. Writes of class disk and memory of its last second may be missing; "
            "readers are told which seqs are gone."
        )
    return "\n".join(lines)
