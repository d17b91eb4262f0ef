"""The places where readers find their records: the tail cache, sealed segments, the cold tier.

Each place has settings of the broker that put the records there, a condition to wait for, and a proof from the broker's
counters before and after the reads. A figure without this proof does not count.

- tail: nothing is flushed, and the tail cache holds all live records: no file is read.
- sealed: the tail cache is empty, and all records to read are in sealed segments in the data directory.
- cold: the same segments are in a cold tier that is a directory, and each read asks the tier at least once. This
  measures the broker's path to the tier, not a distant store: that is `loadtest.cold_reads`.
"""

from __future__ import annotations

import time

from loadtest.observed import counters
from loadtest.own_broker import BrokerFailed
from loadtest.scenario import Scenario

PLACES = ("tail", "sealed", "cold")
SEGMENT_RECORDS = 10_000
_NEVER = str(1_000_000_000)
_THERE_WITHIN_S = 120.0
_AGAIN_S = 0.1
#: More than any preload takes.
_WHOLE_TAIL_BYTES = str(8 << 30)

Counters = dict[str, float]


def settings(place: str, cold_dir: str) -> dict[str, str]:
    """TOPICS_* without that prefix, of a broker that is to have the records there. `cold_dir` is its cold tier."""
    if place == "tail":
        return {"CHECKPOINT_INTERVAL_MS": _NEVER, "TAIL_CACHE_BYTES": _WHOLE_TAIL_BYTES}
    segments = {
        "SEGMENT_MAX_EVENTS": str(SEGMENT_RECORDS),
        "CHECKPOINT_INTERVAL_MS": "100",
        "CHECKPOINT_RECORDS": "5000",
        "TAIL_CACHE_BYTES": "0",
    }
    return segments if place == "sealed" else segments | {"COLD_DIR": cold_dir, "HOT_RETAIN_SEGMENTS": "0"}


def written_for(scenario: Scenario) -> int:
    """Records a topic gets: two segments more than are read where these must be finished, for the last ones are not."""
    return scenario.preload + (2 * SEGMENT_RECORDS if scenario.place in ("sealed", "cold") else 0)


def settle(host: str, port: int, scenario: Scenario) -> None:
    """Wait until the records are where they are to be. Raises BrokerFailed when that takes longer than two minutes."""
    until = time.monotonic() + _THERE_WITHIN_S
    while wrong := misplaced(scenario, counters(host, port)):
        if time.monotonic() > until:
            raise BrokerFailed(f"{scenario.name}: {wrong}")
        time.sleep(_AGAIN_S)


def misplaced(scenario: Scenario, seen: Counters) -> str:
    """The evidence that records are not at the scenario's place; "" = there is none."""
    due = scenario.topics * -(-scenario.preload // SEGMENT_RECORDS)
    cached, live = seen["topics_tail_cache_bytes"], seen["topics_live_bytes"]
    cold, sealed = seen["topics_segments_cold"], seen["topics_segments_sealed_total"]
    if scenario.place == "tail":
        if flushed := seen["topics_flushed_records_total"]:
            return f"{flushed:,.0f} records are in segments"
        return f"the tail cache holds {cached:,.0f} bytes of {live:,.0f}" if cached < live or not live else ""
    if cached:
        return f"the tail cache holds {cached:,.0f} bytes"
    if scenario.place == "sealed":
        if cold:
            return f"{cold:,.0f} segments are cold"
        return f"{sealed:,.0f} segments are sealed of {due:,} that are read" if sealed < due else ""
    return f"{cold:,.0f} segments are cold of {due:,} that are read" if cold < due else ""


def proof(scenario: Scenario, before: Counters, after: Counters, requests: int) -> str:
    """The evidence of the counters before and after `requests` reads. Raises BrokerFailed when the reads went
    elsewhere.
    """
    asked = after["topics_cold_reads_total"] - before["topics_cold_reads_total"]
    read = after["topics_read_records_total"] - before["topics_read_records_total"]
    wrong = misplaced(scenario, before) or misplaced(scenario, after)
    if not wrong and read < requests * scenario.batch:
        wrong = f"{read:,.0f} records were given by {requests:,} reads of {scenario.batch:,}"
    if not wrong and scenario.place == "cold" and asked < requests:
        wrong = f"the cold tier was asked {asked:,.0f} times for {requests:,} reads"
    if not wrong and scenario.place != "cold" and asked:
        wrong = f"the cold tier was asked {asked:,.0f} times"
    if wrong:
        raise BrokerFailed(f"{scenario.name}: not read from there: {wrong}")
    if scenario.place == "tail":
        return f"no record was in a segment, {after['topics_tail_cache_bytes']:,.0f} bytes were in the tail cache"
    if scenario.place == "sealed":
        return f"{after['topics_segments_sealed_total']:,.0f} sealed segments, none of them cold, no tail cache"
    return f"{after['topics_segments_cold']:,.0f} segments were cold, and asked {asked:,.0f} times"
