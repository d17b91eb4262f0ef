"""What a cluster is: the object `cluster` at its prefix, made by `python -m storage cluster init` and never changed.

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

FORMAT: Final = 1
GIVE_UP_S: Final = 30.0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the object."""

    format: int = FORMAT
    #: Random, drawn when the cluster was made.
    cluster_id: str
    #: Where it was made: scheme, bucket and prefix.
    url: str
    #: How many cells it has, which never changes.
    cells: int


class NoCluster(OpenError):
    """There is no cluster at this place."""


def found(location: Location, cluster_id: str, cells: int) -> Steps[Cluster]:
    """Make the object, or return what another process has made. Raises Unanswered, and as `read_cluster`."""
    until = (yield from now()) + GIVE_UP_S
    made = Cluster(cluster_id=cluster_id, url=str(location), cells=cells)
    yield from patiently(Create(keys.CLUSTER, msgspec.json.encode(made)), until)
    return (yield from read_cluster(location))


def read_cluster(location: Location) -> Steps[Cluster]:
    """The cluster at this place. Raises NoCluster, OpenError for a copied prefix, MetadataLost, UnsupportedFormat,
    Unanswered."""
    until = (yield from now()) + GIVE_UP_S
    data = yield from patiently(Get(keys.CLUSTER), until)
    if data is None:
        raise NoCluster(
            f"There is no cluster at {location}. `python -m storage cluster init {location} --cells N` makes one."
        )
    try:
        cluster = msgspec.json.decode(data, type=Cluster)
    except msgspec.DecodeError as error:
        raise MetadataLost(f"{location}/{keys.CLUSTER} is damaged: {error}.") from None
    if cluster.format != FORMAT:
        raise UnsupportedFormat(f"{location}/{keys.CLUSTER} has format {cluster.format}; this program knows {FORMAT}.")
    if cluster.url != str(location):
        raise OpenError(f"The objects at {location} are a copy of the cluster at {cluster.url}; a copy is not started.")
    return cluster
