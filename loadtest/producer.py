"""Measures the Python client's producer beside batches that the same client sends by hand.

    python -m loadtest.producer                              1000 records a batch, 200 bytes each, 7 rounds
    python -m loadtest.producer --records 400000 --rounds 9 --json loadtest/results/producer.json

By hand, one thread gathers records into a list and appends it, one request after the other. The producer gets the same
records one by one, and its handles are dropped. Both sides write in turn to topics of one broker; the result is the
ratio within a round.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from loadtest.compare import Ratio, ratio_of
from loadtest.own_broker import BrokerFailed, OwnBroker, add_set
from loadtest.report import keep
from topics_client import Client, Producer

SIDES = ("by hand", "producer")


class Leg(msgspec.Struct, kw_only=True):
    """One side's part of a round. Processor time of this process, in µs a record."""

    side: str
    records_per_s: float
    client_us_per_record: float


class Found(msgspec.Struct, kw_only=True):
    """All legs, and the ratio of the producer's records a second to those sent by hand."""

    legs: list[Leg]
    ratio: Ratio


def leg(client: Client, side: str, records: list[Any], batch: int) -> Leg:
    """Append the records to a new topic, then delete the topic."""
    topic = side.replace(" ", "-")
    client.put_topic(topic)
    begin, cpu = time.monotonic(), time.process_time()
    if side == "producer":
        with Producer(client, batch_records=batch) as producer:
            for record in records:
                producer.send(topic, record)
    else:
        for at in range(0, len(records), batch):
            client.append(topic, records[at : at + batch])
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    head = client.state(topic).head_seq
    if head != len(records):
        raise RuntimeError(f"{side}: {head} of {len(records)} records are stored")
    client.delete_topic(topic)
    return Leg(side=side, records_per_s=len(records) / seconds, client_us_per_record=1e6 * cpu / len(records))


def measure(client: Client, records: list[Any], batch: int, rounds: int) -> Found:
    """Both sides in turns, each round from the other one on. A first short round is not counted."""
    for side in SIDES:
        leg(client, side, records[: 5 * batch], batch)
    pairs: list[tuple[float, float]] = []
    legs: list[Leg] = []
    for number in range(rounds):
        found = {side: leg(client, side, records, batch) for side in (SIDES if number % 2 else SIDES[::-1])}
        legs += found.values()
        pairs.append((found["by hand"].records_per_s, found["producer"].records_per_s))
    return Found(legs=legs, ratio=ratio_of("records/s", pairs))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.producer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000, help="records of one side in one round")
    parser.add_argument("--record-bytes", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1000, help="records in one request")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", default="", help="where the broker's data directory is made")
    parser.add_argument("--json", type=Path, help="keep the results there")
    add_set(parser)
    options = parser.parse_args(arguments)
    records = [{"number": number, "text": "x" * options.record_bytes} for number in range(options.records)]
    broker = OwnBroker(settings=dict(options.set), parent=options.dir)
    try:
        broker.start()
        with Client(f"http://{broker.host}:{broker.port}") as client:
            found = measure(client, records, options.batch, options.rounds)
    except BrokerFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        broker.close()
    for each in found.legs:
        print(f"{each.side:10} {each.records_per_s:10.0f} records/s {each.client_us_per_record:8.2f} µs/record")
    ratio = found.ratio
    print(f"producer / by hand: {ratio.ratio:.2f} ({ratio.lowest:.2f} to {ratio.highest:.2f})")
    if options.json is not None:
        command = shlex.join(["python", "-m", "loadtest.producer", *(sys.argv[1:] if arguments is None else arguments)])
        print(f"kept in {keep(options.json.stem, command, found, options.json.parent)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
