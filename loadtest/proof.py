"""A load that goes on for long: is the work behind it done meanwhile, or does the figure come from putting it off?

Records are moved to segments and snapshots are taken while the load goes on; how much of it was done is shown beside
the figure, and one without either is refused.
"""

from __future__ import annotations

from loadtest.own_broker import BrokerFailed

SECONDS = 60.0
#: Often enough for several of them, whatever the rate is.
SETTINGS = {"SNAPSHOT_INTERVAL_MS": "10000"}

Counters = dict[str, float]


def proof(name: str, before: Counters, after: Counters) -> str:
    """What was done between two looks at the counters. Raises BrokerFailed when absorber or snapshots stood still."""

    def grown(counter: str) -> float:
        return after[counter] - before[counter]

    absorbed, snapshots = grown("topics_flushed_records_total"), grown("topics_snapshots_total")
    if not absorbed or not snapshots:
        raise BrokerFailed(f"{name}: {absorbed:,.0f} records were absorbed, {snapshots:,.0f} snapshots were taken")
    return (
        f"of {grown('topics_appended_records_total'):,.0f} records {absorbed:,.0f} were absorbed,"
        f" {after['topics_unflushed_records']:,.0f} were to be absorbed when the load ended;"
        f" {snapshots:,.0f} snapshots, {grown('topics_wal_files_trimmed_total'):,.0f} log files trimmed"
    )
