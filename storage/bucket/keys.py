"""Names of the objects of a cluster in its bucket. Every object but a sign of life is created once and never changed.

    cluster, cluster.<n>                                what the cluster is; the highest number counts
    nodes/<nonce>                                       the sign of life of a process
    members/<node>                                      that of a node (`broker.cluster`)
    plan/<number>                                       what operators want of the nodes (`broker.cluster`)
    <cell>/log/<slot>                                   the log
    <cell>/base/<number>                                heads of bases
    <cell>/manifest/<number>.<nonce>.<attempt>                 what a base consists of
    <cell>/begin/<nonce>/FORMAT                         the file FORMAT of a new cell
    <cell>/...                                          the objects that manifests name

Cells are `cell-00` and so on; numbers are 16 hex digits.
"""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
NODES: Final = "nodes/"
MEMBERS: Final = "members/"
PLAN: Final = "plan/"


def cluster(revision: int) -> str:
    return f"{CLUSTER}.{revision}" if revision else CLUSTER


def slot(cell: str, number: int) -> str:
    return f"{cell}/log/{number:016x}"


def head(cell: str, number: int) -> str:
    return f"{cell}/base/{number:016x}"


def manifest(cell: str, number: int, nonce: str, attempt: int) -> str:
    return f"{cell}/manifest/{number:016x}.{nonce}.{attempt}"


def format_file(cell: str, nonce: str) -> str:
    return f"{cell}/begin/{nonce}/FORMAT"


def sign(nonce: str) -> str:
    return f"{NODES}{nonce}"
