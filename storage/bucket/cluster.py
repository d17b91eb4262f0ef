"""What a cluster is: the objects `cluster`, `cluster.1`, `cluster.2` and so on at its prefix. Each is created once and
never changed, and the last one counts.

`python -m storage cluster init` makes the first one. Another one is made when the cluster begins to use a new format
(`topics cluster finalize`), and when a copy of its objects becomes a cluster of its own (`adopt`).

It has the address at which it was made. A prefix that was copied to another place is refused there: two clusters that
believe to be the same one would share the memory of clients, and give out the same ids.
"""

from __future__ import annotations

from typing import Final

import msgspec

from storage.bucket import keys
from storage.bucket.location import Location
from storage.bucket.requests import Create, Get, Steps, now, patiently
from storage.errors import MetadataLost, OpenError, UnsupportedFormat

#: Of what is in the bucket: those that this program reads. It writes the one that the cluster has, and no newer one
#: before all nodes read that.
FORMATS: tuple[int, ...] = (1, 2)
#: From this one on, segments may be cold.
COLD_FORMAT: Final = 2
GIVE_UP_S: Final = 30.0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an object."""

    format: int = 1
    #: Random, drawn when the cluster was made.
    cluster_id: str
    #: Where it was made: scheme, bucket and prefix.
    url: str
    #: How many cells it has, which never changes.
    cells: int
    #: The number of the object.
    revision: int = 0
    #: The cluster whose objects were copied, if this is a copy that was adopted.
    adopted_id: str = ""


class NoCluster(OpenError):
    """There is no cluster at this place."""


def found(location: Location, cluster_id: str, cells: int) -> Steps[Cluster]:
    """Make the object, or return what another process has made. Raises Unanswered, and as `read_cluster`."""
    until = (yield from now()) + GIVE_UP_S
    made = Cluster(format=max(FORMATS), cluster_id=cluster_id, url=str(location), cells=cells)
    yield from patiently(Create(keys.CLUSTER, msgspec.json.encode(made)), until)
    return (yield from read_cluster(location))


def revise(cluster: Cluster, **changes: str | int) -> Steps[Cluster | None]:
    """Make the next object, with these changes. None: another process has made one of that number. Raises
    Unanswered."""
    until = (yield from now()) + GIVE_UP_S
    made = msgspec.structs.replace(cluster, revision=cluster.revision + 1, **changes)
    key, body = keys.cluster(made.revision), msgspec.json.encode(made)
    if (yield from patiently(Create(key, body), until)):
        return made
    # Perhaps an earlier attempt of this very request.
    return made if (yield from patiently(Get(key), until)) == body else None


def read_cluster(location: Location) -> Steps[Cluster]:
    """The cluster at this place. Raises NoCluster, OpenError for a copied prefix, MetadataLost, UnsupportedFormat,
    Unanswered."""
    cluster = yield from read_record(location)
    if cluster.url != str(location):
        raise OpenError(
            f"The objects at {location} are a copy of the cluster at {cluster.url}; a copy is not started. If the copy "
            f"is complete and nothing writes to it, `python -m storage cluster adopt {location}` makes it a cluster of "
            "its own."
        )
    return cluster


def read_record(location: Location, known: Cluster | None = None) -> Steps[Cluster]:
    """As `read_cluster`, also of a copy. `known`: what was read before."""
    known = yield from _newest(f"{location}/", known)
    if known is None:
        raise NoCluster(
            f"There is no cluster at {location}. `python -m storage cluster init {location} --cells N` makes one."
        )
    if known.format not in FORMATS:
        read = " and ".join(map(str, FORMATS))
        raise UnsupportedFormat(
            f"{location}/{keys.cluster(known.revision)} has format {known.format}; this program knows {read}. Use the "
            "release that the other nodes have."
        )
    return known


def format_here() -> Steps[int]:
    """The format of the cluster of this prefix, whether this program reads it or not; 0: there is none. Raises
    MetadataLost, Unanswered."""
    cluster = yield from _newest("")
    return 0 if cluster is None else cluster.format


def _newest(front: str, known: Cluster | None = None) -> Steps[Cluster | None]:
    """The last of the objects behind `known`, or else `known`. `front`: what stands in front of its key in errors."""
    until = (yield from now()) + GIVE_UP_S
    while True:
        revision = 0 if known is None else known.revision + 1
        data = yield from patiently(Get(keys.cluster(revision)), until)
        if data is None:
            return known
        known = _decode(front, revision, data)


def _decode(front: str, revision: int, data: bytes) -> Cluster:
    try:
        cluster = msgspec.json.decode(data, type=Cluster)
    except msgspec.DecodeError as error:
        raise MetadataLost(f"{front}{keys.cluster(revision)} is damaged: {error}.") from None
    if cluster.revision != revision:
        raise MetadataLost(f"{front}{keys.cluster(revision)} has the content of object {cluster.revision}.")
    return cluster
