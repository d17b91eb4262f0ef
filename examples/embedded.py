"""An order desk that keeps its orders in an embedded engine: no server, no event loop.

    python examples/embedded.py DIRECTORY

Run it again: every order is billed once, whatever happened to the runs before it.
"""

from __future__ import annotations

import sys

from storage import BinaryRecord, BlockingEngine, Consistency, Durability, TopicConfig


def take_orders(engine: BlockingEngine, run: int) -> None:
    """Orders of one customer belong together: all of them are there after a crash, or none is."""
    # The key makes a repeat of the same write harmless, should it be unknown whether the first one came through.
    done = engine.append_batch(
        "orders",
        [{"run": run, "item": item, "price": price} for item, price in (("tea", 4), ("cup", 9))],
        idempotency_key=f"run-{run}",
    )
    print(f"orders {done.first_seq} to {done.last_seq} are on the disk")
    # Anything goes: raw bytes come back as the bytes they were. They may have a tag, as any record.
    engine.append("labels", BinaryRecord(b"\x89PNG...", tag=f"run-{run}"))


def bill(engine: BlockingEngine) -> None:
    """Reads on from where the consumer was. Its cursor is synced before a record is handed out: none comes twice."""
    engine.put_consumer("orders", "billing", consistency=Consistency.STRICTLY_AT_ONCE)
    while (record := engine.read_next("orders", "billing")) is not None:
        print(f"billed order {record.seq}: {record.value['item']} for {record.value['price']}")
        if record.lost is not None:
            print(f"  behind lost orders {record.lost.gap_from} to {record.lost.gap_to}: {record.lost.reason}")


def ship(engine: BlockingEngine) -> None:
    """A record is done with when the next one is asked for; what was in hand at a crash comes again."""
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
