"""Opens the source of a read: a broker, or what no broker serves (see `pipeline.stopped` and `pipeline.cold`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from typing import Protocol

from pipeline.broker import Broker
from pipeline.cold import ColdOrigin
from pipeline.errors import SourceUnreadable
from pipeline.first_contact import reach
from pipeline.planning import Catalogue
from pipeline.split_reader import Origin
from pipeline.stopped import BackupOrigin, ClusterOrigin, DirectoryOrigin, is_backup_directory, is_data_directory
from storage import StorageError
from storage.offline import find_cluster


class FullOrigin(Origin, Catalogue, Protocol):
    """An origin for both planning and reading in a task."""


@contextmanager
def open_origin(
    *, url: str = "", token: str | None = None, path: str = "", cold_path: str = "", first: str = ""
) -> Generator[FullOrigin]:
    """Open the origin at a URL or a path for the block. Raises PipelineError.

    `first`: the option that has the URL, if this is the first contact with the broker, which is not waited for long.
    """
    if url:
        with closing(Broker(url, token)) as broker:
            if first:
                reach(broker.client, first)
            yield broker
    else:
        with closing(_at(path, cold_path)) as origin:
            yield origin


def _at(path: str, cold_path: str) -> DirectoryOrigin | BackupOrigin | ClusterOrigin | ColdOrigin:
    """What is at a path or a URL is seen there: a cluster in a bucket and a cold tier look alike otherwise."""
    if is_data_directory(path):
        return DirectoryOrigin(path, cold_path)
    if is_backup_directory(path):
        return BackupOrigin(path, cold_path)
    try:
        cluster = find_cluster(path) if "://" in path else None
    except (ValueError, StorageError) as error:
        raise SourceUnreadable(f"{path.partition('://')[0]}://… cannot be read: {error}") from error
    return ColdOrigin(path) if cluster is None else ClusterOrigin(path, cluster)
