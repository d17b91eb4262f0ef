"""Takes pictures of the console: a broker of its own with some of everything, in each size and colour.

.venv/bin/python -m tests.console.pictures                 # those of the guide, into docs/images/console
.venv/bin/python -m tests.console.pictures --all FOLDER    # all pages, to look at
"""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.console.built import ROOT, SIZES, ConsolePage, console
from tests.support.live_server import LiveServer

GUIDE = ROOT / "docs" / "images" / "console"
#: How long the broker works before the pictures: lines of the last hour have a point every 10 seconds.
WORK_S = 75
QUALITY = 82
PATIENCE_S = 120
V2 = {"content-type": "application/vnd.kafka.v2+json"}


class Picture(NamedTuple):
    """An address, a text that it shows, what is clicked then, and the sizes and colours that the guide has."""

    name: str
    address: str
    shows: str
    clicks: tuple[str, ...] = ()
    in_guide: tuple[str, ...] = ()


PICTURES = (
    Picture("overview", "#/", "Busiest topics", in_guide=("wide-light",)),
    Picture("topics", "#/topics", "orders.eu"),
    Picture("topic", "#/topics/orders.eu", "Watch live"),
    Picture("record", "#/topics/orders.eu", "Watch live", (".record",)),
    Picture("live", "#/topics/orders.eu?live=1&filter=sku-1", "sku-1", in_guide=("narrow-dark",)),
    Picture("config", "#/topics/orders.eu?tab=config", "cap_records"),
    Picture("produce", "#/topics/orders.eu?tab=produce", "Append record"),
    Picture("partitions", "#/topics/clicks?tab=partitions", "Partition"),
    Picture("storage", "#/topics/orders.eu?tab=storage", "Retention"),
    Picture("queues", "#/queues", "mails"),
    Picture("jobs", "#/queues/mails?state=leased", "worker-1"),
    Picture("dead", "#/queues/mails?state=dead", "mailbox", in_guide=("wide-light",)),
    Picture("routers", "#/routers", "eu-to-audit", in_guide=("wide-dark",)),
    Picture("consumers", "#/consumers", "billing"),
    Picture("groups", "#/consumers?tab=groups", "shipping"),
    Picture("group", "#/consumers/shipping?tab=groups", "no members", in_guide=("wide-light",)),
    Picture("cluster", "#/cluster", "This broker is alone"),
    Picture("keys", "#/keys", "no keys"),
    Picture("missing", "#/topics/nothing", "There is no topic"),
    Picture("new", "#/topics", "orders.eu", ("New topic",)),
    Picture("help", "#/topics", "orders.eu", ("Keyboard shortcuts",)),
)


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    return http.post(path, json=body).raise_for_status().json()


REASONS = ("550 no such mailbox", "421 timeout of smtp.example.com", "attachment is too large")


def fill(http: httpx.Client) -> None:
    """Topics, queues, routers and consumers as a shop has them."""
    for name in ("orders.eu", "orders.us", "audit", "prices"):
        http.put(f"/v0/topics/{name}", json={"durability": "fsync"}).raise_for_status()
    http.put("/v0/topics/clicks", json={"partitions": 12}).raise_for_status()
    for number in range(14):
        http.put(f"/v0/topics/sensors.hall-{number:02d}", json={"ttl_ms": 86_400_000}).raise_for_status()
    for name, source, dest in (
        ("eu-to-audit", "orders.eu", "audit"),
        ("us-to-audit", "orders.us", "audit"),
        ("eu-mails", "orders.eu", "mails"),
        ("prices-copy", "prices", "prices.cache"),
    ):
        queue = {"type": "queue", "dead_letter": "mails-dead", "max_deliveries": 1}
        if dest == "mails":
            http.put("/v0/topics/mails", json=queue).raise_for_status()
        http.put(f"/v0/routers/{name}", json={"source": source, "dest": dest}).raise_for_status()
    http.put("/v0/topics/thumbnails", json={"type": "queue"}).raise_for_status()
    post(http, "/v0/topics/thumbnails/pause", {})
    for name in ("billing", "search-index", "stock"):
        http.put(f"/v0/topics/orders.eu/consumers/{name}", json={}).raise_for_status()
    # A group that has committed something, and whose only member has left.
    for partition in range(12):
        clicks = {"records": [{"data": {"page": f"/item/{each}"}} for each in range(5 * (1 + partition % 4))]}
        post(http, f"/v0/topics/clicks?partition={partition}", clicks)
    asked = {"name": "one", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    http.post("/consumers/shipping", json=asked, headers=V2).raise_for_status()
    offsets = [{"topic": "clicks", "partition": each, "offset": 0} for each in range(12)]
    http.post("/consumers/shipping/instances/one/offsets", json={"offsets": offsets}, headers=V2).raise_for_status()
    http.delete("/consumers/shipping/instances/one", headers=V2).raise_for_status()


def work(url: str, ended: threading.Event) -> None:
    """Appends and works until `ended`."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        number = 0
        while not ended.is_set():
            number += 1
            for at, topic in enumerate(("orders.eu", "orders.us", "prices", "sensors.hall-03")):
                data = [
                    {"data": {"order": number * 10 + each, "sku": f"sku-{each}", "price": 9.5 + each}, "tag": "new"}
                    for each in range(8 - 2 * at)
                ]
                post(http, f"/v0/topics/{topic}", {"records": data, "node": "shop-1"})
            post(http, "/v0/topics/thumbnails", {"records": [{"data": {"image": number}}]})
            claimed = post(http, "/v0/topics/mails/claim", {"node": "worker-1", "max": 6})["claimed"]
            for job in claimed[: 5 if number % 100 == 0 else 6]:
                seq = int(job["$seq"])
                settled = {"node": "worker-1", "seqs": [seq]}
                if seq % 29 == 0:
                    post(http, "/v0/topics/mails/nack", settled | {"reason": REASONS[seq % 3]})
                else:
                    post(http, "/v0/topics/mails/ack", settled)
            for name, count in (("billing", 8), ("stock", 5)):
                post(http, f"/v0/topics/orders.eu/consumers/{name}/read", {"limit": count})
            ended.wait(0.15)


def take(page: ConsolePage, path: Path) -> None:
    """Write what the window shows."""
    found = page.call("Page.captureScreenshot", format="webp", quality=QUALITY)
    path.write_bytes(base64.b64decode(found["data"]))


def take_all(page: ConsolePage, folder: Path, *, all_of_them: bool) -> None:
    for picture in PICTURES:
        for size in SIZES:
            for dark in (False, True):
                look = f"{size}-{'dark' if dark else 'light'}"
                if not all_of_them and look not in picture.in_guide:
                    continue
                page.look(size, dark=dark)
                page.open("#/nowhere", "There is no such page.")
                page.open(picture.address, picture.shows)
                for click in picture.clicks:
                    if click.startswith("."):
                        page.until(f"document.querySelector('{click}') !== null")
                        page.evaluate(f"document.querySelector('{click}').click()")
                    else:
                        page.click(click)
                page.evaluate("new Promise((done) => setTimeout(done, 1200))")
                take(page, folder / f"{picture.name}-{look}.webp")
                page.press("Escape")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.pictures", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take all pictures, into this folder")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("There is no chromium: install it.")
    folder: Path = options.all or GUIDE
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="topics-console-") as temporary:
        home = Path(temporary)
        with LiveServer(home / "data") as server, console(chromium, server.url, home) as page:
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
                fill(http)
            ended = threading.Event()
            worker = threading.Thread(target=work, args=(server.url, ended))
            worker.start()
            try:
                time.sleep(WORK_S)
                take_all(page, folder, all_of_them=options.all is not None)
            finally:
                ended.set()
                worker.join()
    print(f"{sum(path.stat().st_size for path in folder.glob('*.webp')) / 1000:.0f} kB in {folder}")


if __name__ == "__main__":
    main()
