"""The worker that confirms orders by mail. Start as many as you like; Ctrl-C ends one, after the mails in hand.

    .venv/bin/python examples/web_shop/mailer.py            # the order of Eve ends in mails-dead
    .venv/bin/topics read mails-dead                        # with the reason
    .venv/bin/topics redrive mails                          # back into the queue ...
    .venv/bin/python examples/web_shop/mailer.py --fixed    # ... for a mailer that can read her address

A mail may be sent twice (the mailer dies after it has sent one and before it says so), but none is forgotten.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from email.utils import parseaddr

from topics_client import Backoff, Client, JobContext, Worker

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
FIXED = "--fixed" in sys.argv[1:]


@dataclass
class Order:
    """What the shop writes. A job whose data is something else goes to the dead letters at once."""

    number: str
    item: str
    email: str


def address_of(order: Order) -> str:
    if FIXED:
        return parseaddr(order.email)[1]
    if " " in order.email:
        raise ValueError(f"no such address: {order.email}")
    return order.email


def confirm(order: Order, context: JobContext) -> None:
    # An exception gives the job back. Its text is the reason that the dead letter shows, so let it say what was wrong.
    address = address_of(order)
    # A real mailer sends here, with order.number in the Message-ID, so that the second of two alike can be told. That
    # may take longer than the lease: the worker renews it as long as this function runs.
    # The line is written with its end at once: four handlers print side by side, and print() writes the end by itself.
    said = f"to {address}: your {order.item} is on its way ({order.number}, try {context.deliveries})\n"
    print(said, end="", flush=True)


def main() -> None:
    with Client(URL) as broker:
        worker = Worker(broker)
        # Waits between tries grow, so that a mail server that is down for a minute costs no job its tries.
        worker.queue("mails", concurrency=4, lease="30s", retry=Backoff(first="200ms", longest="1m"))(confirm)
        worker.run()


if __name__ == "__main__":
    main()
