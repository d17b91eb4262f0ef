"""The shop: makes its topics and takes three orders. One customer writes the address in a way the mailer cannot read.

    make run                                        # the broker, in another terminal
    .venv/bin/python examples/web_shop/shop.py

Run it again: it changes no topic, and takes no order twice. Then run mailer.py.
"""

from __future__ import annotations

import os

from topics_client import Client

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")

ORDERS = [
    {"number": "A-1", "item": "tea", "email": "ann@example.com"},
    {"number": "A-2", "item": "cup", "email": "Eve <eve@example.com>"},
    {"number": "A-3", "item": "jam", "email": "bob@example.com"},
]


def open_shop(broker: Client) -> None:
    # An answered order must survive the machine, not only the process: each is synced before it is acked.
    broker.put_topic("orders", durability="fsync")
    # A mail that fails three times is put aside. It neither blocks the others nor is it lost.
    broker.put_topic("mails", type="queue", durability="fsync", max_deliveries=3, dead_letter="mails-dead")
    # Each order becomes a job. If the shop wrote into both, a crash between the writes would leave an order unmailed.
    broker.put_router("order-mails", "orders", "mails")


def take_order(broker: Client, order: dict[str, str]) -> None:
    # The number of the order as the key: whoever is unsure whether an order came through just sends it again.
    done = broker.append("orders", [order], idempotency_key=order["number"])
    print(f"order {order['number']} is stored as {done.first_seq}")


def main() -> None:
    with Client(URL) as broker:
        open_shop(broker)
        for order in ORDERS:
            take_order(broker, order)


if __name__ == "__main__":
    main()
