"""Checks that a long load includes its background work: a figure must not come from postponing it.

Records are moved to segments and snapshots are taken while the load runs. The amount of that work is shown beside the
figure, and a figure without it is refused.
"""

from __future__ import annotations

from loadtest.own_broker import BrokerFailed

SECONDS = 60.0
#: Often enough for several of them, whatever the rate is.
SETTINGS = {"SNAPSHOT_INTERVAL_MS": "10000"}

Counters = dict[str, float]


def proof(name: str, before: Counters, after: Counters) -> str:
    """The background work between two readings of the counters. Raises BrokerFailed when flusher or snapshots stood
    still.
    """

    def grown(counter: str) -> float:
        return after[counter] - before[counter]

    flushed, snapshots = grown("topics_flushed_records_total"), grown("topics_snapshots_total")
    if not flushed or not snapshots:
        raise BrokerFailed(f"{name}: {flushed:,.0f} records were flushed, {snapshots:,.0f} snapshots were taken")
    return (
        f"of {grown('topics_appended_records_total'):,.0f} records {flushed:,.0f} were flushed,"
        f" {after['topics_unflushed_records']:,.0f} were still to be flushed when the load ended;"
        f" {snapshots:,.0f} snapshots, {grown('topics_wal_files_trimmed_total'):,.0f} log files trimmed"
    )
