"""An order desk that keeps its orders in an embedded engine: no server, no event loop.

    python examples/embedded.py DIRECTORY

Run it again: every order is billed once, whatever happened to the runs before it.
"""

from __future__ import annotations

import sys

from storage import BinaryRecord, BlockingEngine, Consistency, Durability, TopicConfig


def take_orders(engine: BlockingEngine, run: int) -> None:
    """The orders of one customer are one batch: after a crash either all of them are there or none."""
    # The key makes it safe to repeat the write when its outcome is unknown.
    done = engine.append_batch(
        "orders",
        [{"run": run, "item": item, "price": price} for item, price in (("tea", 4), ("cup", 9))],
        idempotency_key=f"run-{run}",
    )
    print(f"orders {done.first_seq} to {done.last_seq} are on the disk")
    # A record may also be raw bytes. It may have a tag, like any record.
    engine.append("labels", BinaryRecord(b"\x89PNG...", tag=f"run-{run}"))


def bill(engine: BlockingEngine) -> None:
    """Reads on from the consumer's cursor, which is synced before a record is handed out: no record comes twice."""
    engine.put_consumer("orders", "billing", consistency=Consistency.STRICTLY_AT_ONCE)
    while (record := engine.read_next("orders", "billing")) is not None:
        print(f"billed order {record.seq}: {record.value['item']} for {record.value['price']}")
        if record.lost is not None:
            print(f"  behind lost orders {record.lost.gap_from} to {record.lost.gap_to}: {record.lost.reason}")


def ship(engine: BlockingEngine) -> None:
    """Asking for the next record marks this one as done. After a crash the record in work comes again."""
    print(f"{engine.unread('orders', 'shipping')} orders to ship")
    for record in engine.follow("orders", "shipping", wait_ms=0):
        print(f"shipped order {record.seq}")


def main(directory: str) -> None:
    with BlockingEngine.open(directory) as engine:
        # Each write is synced before it is acked. DISK: by a timer; MEMORY: never.
        engine.put_topic("orders", TopicConfig(durability=Durability.FSYNC))
        take_orders(engine, run=engine.state("orders").count // 2 + 1)
        bill(engine)
        ship(engine)
        labels = engine.read_batch("labels", "printer", max_bytes=1 << 20)
        print(f"printed {sum(map(len, labels.data()))} bytes of labels")


if __name__ == "__main__":
    main(sys.argv[1])
