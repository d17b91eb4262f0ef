"""The console in a browser: daily tasks by clicks and keys, keys and scopes, hostile data, access, and size."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.console.built import ConsolePage
from tests.http.browser.chromium import PATIENCE_S
from tests.support.live_server import LiveServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_S)]

MAX_BYTES = 150_000
OTHER_CLOCK = Path(__file__).resolve().parents[2] / "loadtest" / "other_clock"
HOSTILE = (
    "<img src=x onerror=globalThis.owned=1>",
    "<script>globalThis.owned=1</script>",
    "'\"><svg onload=globalThis.owned=1>",
    "javascript:globalThis.owned=1",
    "{{constructor.constructor('globalThis.owned=1')()}}",
    "</code></button><iframe srcdoc='<script>parent.owned=1</script>'>",
    "\u202egnirts desrever\u202c \U0001f4a3",
)
PAGES = (
    ("#/", "Records appended"),
    ("#/topics", "orders"),
    ("#/topics/orders", "Watch live"),
    ("#/topics/orders?tab=produce", "Append record"),
    ("#/topics/orders?tab=config", "durability"),
    ("#/topics/orders?tab=storage", "Retention"),
    ("#/topics/orders?tab=consumers", "billing"),
    ("#/topics/wide?tab=partitions", "Partition"),
    ("#/queues", "mails"),
    ("#/queues/mails", "Ready 3"),
    ("#/queues/mails?state=dead", "550 no such mailbox"),
    ("#/routers", "to-audit"),
    ("#/consumers", "billing"),
    ("#/consumers?tab=groups", "Kafka groups"),
    ("#/cluster", "This broker is alone"),
    ("#/keys", "This broker has no keys."),
    ("#/nowhere", "There is no such page."),
)


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    return http.post(path, json=body).raise_for_status().json()


def seed(http: httpx.Client) -> None:
    """Some of everything."""
    post(http, "/v0/topics/orders", {"records": [{"data": {"order": each}, "tag": "new"} for each in range(30)]})
    http.put("/v0/topics/wide", json={"partitions": 4}).raise_for_status()
    http.put("/v0/topics/orders/consumers/billing", json={}).raise_for_status()
    http.put("/v0/routers/to-audit", json={"source": "orders", "dest": "audit", "from": "earliest"}).raise_for_status()
    queue = {"type": "queue", "dead_letter": "mails-dead", "max_deliveries": 1}
    http.put("/v0/topics/mails", json=queue).raise_for_status()
    post(http, "/v0/topics/mails", {"records": [{"data": {"to": f"user-{each}"}} for each in range(5)]})
    claimed = post(http, "/v0/topics/mails/claim", {"node": "w", "max": 2})["claimed"]
    for job, reason in zip(claimed, ("550 no such mailbox", "timeout of smtp"), strict=True):
        post(http, "/v0/topics/mails/nack", {"node": "w", "seqs": [job["$seq"]], "reason": reason})


def state_of(http: httpx.Client, queue: str) -> dict[str, Any]:
    return http.get(f"/v0/topics/{queue}").raise_for_status().json()["queue"]


@pytest.mark.fast
def test_all_files_have_less_than_the_limit(built: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in built.glob("*.gz")}
    assert {name.partition(".")[0].partition("-")[0] for name in sizes} == {"app", "style", "icon", "index"}
    assert 10_000 < sum(sizes.values()) <= MAX_BYTES


def test_a_dead_letter_is_found_by_its_reason_and_redriven(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.click("Queues")
    page.click("mails")
    page.click("Dead")
    page.shows("timeout of smtp")
    page.fill("Died", "7200")
    page.fill("Filter", "mailbox")
    page.hides("timeout of smtp")
    page.click("Choose dead letter")
    page.click("Redrive 1")
    page.shows("1 job goes from mails-dead back to mails")
    page.click("Redrive")
    page.shows("Moved 1 job back to mails.")
    assert state_of(http, "mails")["ready"] == 4
    left = http.get("/v0/topics/mails-dead/records").json()["records"]
    assert [each["meta"]["$dead_letter_reason"] for each in left] == ["timeout of smtp"]


def many_dead(http: httpx.Client, count: int) -> None:
    """A queue with so many dead letters."""
    queue = {"type": "queue", "dead_letter": "mails-dead", "max_deliveries": 1, "durability": "memory"}
    http.put("/v0/topics/mails-dead", json={"durability": "memory"}).raise_for_status()
    http.put("/v0/topics/mails", json=queue).raise_for_status()
    post(http, "/v0/topics/mails", {"records": [{"data": each} for each in range(count)]})
    claimed = post(http, "/v0/topics/mails/claim", {"node": "w", "max": count})["claimed"]
    post(http, "/v0/topics/mails/nack", {"node": "w", "seqs": [job["$seq"] for job in claimed]})


def test_all_dead_letters_are_redriven_while_another_page_is_looked_at(http: httpx.Client, page: ConsolePage) -> None:
    many_dead(http, 900)  # two calls
    page.open("#/queues/mails", "Ready 0")
    page.click("Redrive all")
    page.shows("900 jobs go from mails-dead back to mails")
    page.click("Redrive all")
    page.press("g", "t")
    page.shows("Done: 900 of 900 jobs moved.")
    assert "mails-dead" in page.text
    assert state_of(http, "mails")["ready"] == 900
    page.click("Close")
    page.hides("900 of 900")


def test_a_queue_is_paused_resumed_and_purged(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.open("#/queues/mails", "Ready 3")
    page.click("Pause")
    page.shows("Paused: workers get no jobs.")
    assert state_of(http, "mails")["paused"] is True
    page.click("Resume")
    page.shows("Resumed.")
    page.click("Purge")
    page.shows("3 ready jobs")
    page.fill("Type mails", "mails")
    # Only what was confirmed is deleted.
    post(http, "/v0/topics/mails", {"records": [{"data": "late"}]})
    page.click("Purge")
    page.shows("Done: 3 of 3 jobs deleted.")
    assert state_of(http, "mails")["ready"] == 1


def test_a_topic_is_created_by_keys_and_deleted_after_its_name_was_typed(http: httpx.Client, page: ConsolePage) -> None:
    page.shows("Nothing needs attention.")
    page.press("g", "t")
    page.shows("There are no topics yet.")
    page.click("New topic")
    page.fill("Name", "fresh.topic")
    page.press("Enter")
    page.shows("This topic has no records.")
    assert http.get("/v0/topics/fresh.topic").json()["config"]["durability"] == "fsync"
    page.click("Delete topic")
    page.shows("0 records")
    page.press("Escape")
    page.until("document.querySelector('dialog') === null")
    assert http.get("/v0/topics/fresh.topic").status_code == 200
    page.click("Delete topic")
    page.fill("Type fresh.topic", "fresh.topic")
    page.until("document.querySelector('dialog [type=submit]')?.disabled === false")
    page.press("Enter")
    page.shows("Deleted fresh.topic.")
    assert http.get("/v0/topics/fresh.topic").status_code == 404


def test_a_topic_is_found_with_the_search_and_watched_with_a_filter(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.press("/")
    page.type("rder")
    page.until("document.querySelector('[role=option][aria-selected=true]')?.innerText === 'orders'")
    page.press("Enter")
    page.click("Watch live")
    page.shows("Waiting for records.")
    page.fill("Filter", "wanted")
    page.until("document.querySelector('.tools small')?.innerText.includes('arrived')")
    while page.evaluate("!document.body.innerText.includes('wanted-1')"):
        post(http, "/v0/topics/orders", {"records": [{"data": "wanted-1"}, {"data": "other-1"}]})
        page.evaluate("new Promise((done) => setTimeout(done, 500))")
    assert "other-1" not in page.text


def test_a_record_is_appended_and_shown_with_exact_numbers(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.open("#/topics/orders?tab=produce", "Append record")
    page.fill("Data", "no json")
    page.click("Append record")
    page.shows("Data is no JSON")
    page.fill("Data", '{"made": "by hand"}')
    page.fill("Tag", "manual")
    page.click("Append record")
    page.shows("Appended seq 31.")
    found = http.get("/v0/topics/orders/records/31?include_tags=true").json()
    assert (found["data"], found["$tag"]) == ({"made": "by hand"}, "manual")
    page.fill("Data", '{"exact": 9007199254740993, "large": 1e300}')
    page.fill("Meta", '{"trace": 12345678901234567890}')
    page.click("Append record")
    page.shows("Appended seq 32.")
    stored = http.get("/v0/topics/orders/records/32").json()
    assert (stored["data"], stored["meta"]) == (
        {"exact": 9007199254740993, "large": 1e300},
        {"trace": 12345678901234567890},
    )
    page.open("#/topics/orders?by=seq&seq=32", "9007199254740993")


def test_a_change_that_deletes_records_names_them_and_asks_for_the_name(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.open("#/topics/orders?tab=config", "cap_records")
    page.fill("cap_records", "10")
    page.click("Review 1 change")
    page.shows("the oldest 20 of 30 records, because of cap_records")
    assert page.evaluate("find('Apply', 'button') === undefined")  # disabled until the name is typed
    page.fill("Type orders", "orders")
    page.click("Apply")
    page.shows("Changed cap_records.")
    assert http.get("/v0/topics/orders").json()["count"] == 10


def test_lag_is_seen_by_consumer_and_a_position_is_moved(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.press("g", "c")
    page.shows("30 records behind in all")
    page.click("billing")
    page.click("Move")
    page.shows("The consumer skips up to 30 records.")
    page.click("Move")
    page.shows("Moved billing.")
    assert http.get("/v0/topics/orders/consumers/billing").json()["lag"] == 0


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_a_consumer_and_a_router_are_deleted_on_any_screen(http: httpx.Client, page: ConsolePage, size: str) -> None:
    seed(http)
    page.look(size)
    page.open("#/consumers", "30 records behind in all")
    page.click("billing")
    page.click("Delete")
    page.shows("the position 0 in partition 0 of orders")
    page.fill("Type billing", "billing")
    page.click("Delete consumer")
    page.shows("There are no consumers.")
    assert http.get("/v0/topics/orders/consumers/billing").status_code == 404
    page.open("#/routers", "to-audit")
    page.click("to-audit")
    page.shows("none: all records")
    page.click("Delete router")
    page.shows("This cannot be undone")
    page.click("Delete router")
    page.shows("There are no routers.")
    assert http.get("/v0/routers/to-audit").status_code == 404


def test_jobs_are_shown_with_what_they_contain(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.open("#/queues/mails", "user-4")
    assert "user-1" not in page.text  # it is dead
    post(http, "/v0/topics/mails/claim", {"node": "worker-7"})
    page.click("Leased")
    page.shows("worker-7")
    page.shows("user-2")
    post(http, "/v0/topics/mails", {"records": [{"data": "later", "delay_ms": 600_000}]})
    page.click("Delayed")
    page.shows("later")


def test_dead_letters_that_are_out_of_sight_are_not_redriven(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    page.press("g", "q")
    page.click("show dead letters of mails")
    page.shows("timeout of smtp")
    page.fill("Filter", "timeout")
    page.hides("550 no such mailbox")
    page.click("Choose all shown")
    page.shows("Redrive 1")
    page.fill("Filter", "mailbox")
    page.shows("550 no such mailbox")
    page.hides("Redrive 1")
    page.click("Choose all shown")
    page.click("Redrive 1")
    page.click("Redrive")
    page.shows("Moved 1 job back to mails.")
    left = http.get("/v0/topics/mails-dead/records").json()["records"]
    assert [each["meta"]["$dead_letter_reason"] for each in left] == ["timeout of smtp"]


def test_a_group_lags_because_nobody_reads(http: httpx.Client, page: ConsolePage) -> None:
    seed(http)
    v2 = {"content-type": "application/vnd.kafka.v2+json"}
    asked = {"name": "one", "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
    http.post("/consumers/shipping", json=asked, headers=v2).raise_for_status()
    instance = "/consumers/shipping/instances/one"
    http.post(f"{instance}/subscription", json={"topics": ["orders"]}, headers=v2).raise_for_status()
    while not http.get(f"{instance}/records", headers={"accept": "application/vnd.kafka.json.v2+json"}).json():
        pass  # until the group has given it the partition
    offsets = {"offsets": [{"topic": "orders", "partition": 0, "offset": 9}]}
    http.post(f"{instance}/offsets", json=offsets, headers=v2).raise_for_status()
    http.delete(instance, headers=v2).raise_for_status()
    page.press("g", "c")
    page.click("Kafka groups")
    page.click("shipping")
    page.shows("The group has no members: nobody reads.")
    page.until("document.querySelector('[role=table] .badge')?.innerText === '20'")


def test_the_busiest_topics_are_listed(http: httpx.Client, page: ConsolePage) -> None:
    while page.evaluate("!document.body.innerText.includes('Busiest topics')"):
        post(http, "/v0/topics/orders", {"records": [{"data": 1}]})
        page.evaluate("new Promise((done) => setTimeout(done, 200))")
    page.click("orders")
    page.shows("Watch live")


def test_without_a_key_the_page_asks_for_one_and_disables_what_it_does_not_allow(
    page: ConsolePage, tmp_path: Path
) -> None:
    keys = "reader-key:read:mails,admin-key"
    with LiveServer(tmp_path / "data", api_keys=keys) as server:
        http = httpx.Client(base_url=server.url, headers={"authorization": "Bearer admin-key"}, timeout=PATIENCE_S)
        with http:
            seed(http)
            page.visit(server.url)
            page.shows("API key")
            page.fill("Key", "wrong-key")
            page.press("Enter")
            page.shows("The broker does not know this key.")
            page.fill("Key", "reader-key")
            page.press("Enter")
            page.shows("Nothing needs attention.")
            page.open("#/queues/mails", "Ready 3")
            assert page.evaluate("find('Pause', 'button') === undefined")
            assert "admin" in page.evaluate("[...document.querySelectorAll('button')].map((b) => b.title).join()")
            page.open("#/topics", "mails-dead")
            assert "orders" not in page.text
            page.open("#/keys", "yours")
            assert "number 2" not in page.text
            assert "reader-key" not in page.evaluate("document.documentElement.outerHTML")
            assert page.problems() == []


def test_a_key_without_read_sees_the_reason(page: ConsolePage, tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", api_keys="writer-key:write") as server:
        page.visit(server.url)
        page.shows("API key")
        page.press("Escape")
        page.shows("The broker asks for an API key.")
        # Later answers that want a key do not ask again.
        page.evaluate("dispatchEvent(new Event('unauthorized')), new Promise((done) => setTimeout(done, 300))")
        assert page.evaluate("document.querySelector('dialog') === null")
        page.click("Key")
        page.fill("Key", "writer-key")
        page.press("Enter")
        page.shows("This key may not see the figures of the broker.")
        assert "does not answer" not in page.text
        page.open("#/topics", "Not allowed")


def test_a_broker_that_is_gone_is_announced_and_found_again(page: ConsolePage, tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        page.visit(server.url)
        page.shows("Nothing needs attention.")
        server.kill()
        page.shows("The broker does not answer")
        page.shows("Disconnected")
        assert "Nothing needs attention." not in page.text
        port = server.port
    with LiveServer(tmp_path / "data", port=str(port)):
        page.shows("Live")
        page.hides("The broker does not answer")


def test_a_dead_letter_of_an_hour_ago_is_found_by_its_time_and_redriven(page: ConsolePage, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(OTHER_CLOCK), os.environ.get("PYTHONPATH"))))
    for clock_s, ready in (("-3600", "old"), ("0", "new")):
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as opened:
            patch.setenv("PYTHONPATH", path)
            server = opened.enter_context(LiveServer(tmp_path / "data", load_clock_s=clock_s))
            http = opened.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE_S))
            queue = {"type": "queue", "dead_letter": "mails-dead", "max_deliveries": 1, "durability": "fsync"}
            http.put("/v0/topics/mails", json=queue).raise_for_status()
            seqs = post(http, "/v0/topics/mails", {"records": [{"data": f"{ready} mail"}]})["seqs"]
            post(http, "/v0/topics/mails/claim", {"node": "w"})
            post(http, "/v0/topics/mails/nack", {"node": "w", "seqs": seqs, "reason": f"{ready} trouble"})
            if clock_s != "0":
                continue
            page.visit(server.url)
            page.press("g", "q")
            page.click("mails")
            page.click("Dead")
            page.shows("old trouble")
            page.fill("Died", "900")
            page.hides("old trouble")
            page.shows("new trouble")
            assert "old trouble" not in page.text
            page.fill("Died", "7200")
            page.shows("old trouble")
            page.fill("Filter", "old")
            page.hides("new trouble")
            page.click("Choose dead letter")
            page.click("Redrive 1")
            page.until("document.activeElement?.innerText === 'Redrive'")
            page.press("Enter")
            page.shows("Moved 1 job back to mails.")
            left = http.get("/v0/topics/mails-dead/records").json()["records"]
            assert [each["data"] for each in left] == ["new mail"]
            assert state_of(http, "mails")["ready"] == 1


def test_hostile_data_is_shown_and_never_run(http: httpx.Client, page: ConsolePage) -> None:
    records = [{"data": {text: text}, "tag": text[:80], "node": text[:80], "meta": {text: text}} for text in HOSTILE]
    http.put(
        "/v0/topics/bad", json={"type": "queue", "dead_letter": "bad-dead", "max_deliveries": 1}
    ).raise_for_status()
    for topic in ("evil", "bad"):
        post(http, f"/v0/topics/{topic}", {"records": records})
    claimed = post(http, "/v0/topics/bad/claim", {"node": HOSTILE[0], "max": 10})["claimed"]
    for job, text in zip(claimed, HOSTILE, strict=True):
        post(http, "/v0/topics/bad/nack", {"node": HOSTILE[0], "seqs": [job["$seq"]], "reason": text})
    group, v2 = quote(HOSTILE[0], safe=""), {"content-type": "application/vnd.kafka.v2+json"}
    http.post(f"/consumers/{group}", json={"name": "one", "format": "json"}, headers=v2).raise_for_status()
    offsets = {"offsets": [{"topic": "evil", "partition": 0, "offset": 0}]}
    http.post(f"/consumers/{group}/instances/one/offsets", json=offsets, headers=v2).raise_for_status()
    page.open("#/consumers?tab=groups", HOSTILE[0])
    page.click(HOSTILE[0])
    page.shows("Partitions without a member")
    http.delete(f"/consumers/{group}/instances/one", headers=v2).raise_for_status()
    page.open("#/topics/evil", "onerror=globalThis.owned")
    page.evaluate("document.querySelector('.record').click()")
    page.shows("Meta")
    page.press("Escape")
    page.open("#/queues/bad?state=dead", "onerror=globalThis.owned")
    page.open("#/topics/<img src=x onerror=globalThis.owned=1>", "not a valid topic name")
    page.open("#/topics?q=<script>globalThis.owned=1</script>", "No topic has “<script>globalThis.owned=1")
    assert page.evaluate("globalThis.owned") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, svg[onload], body script').length") == 0


def test_a_long_table_has_only_the_rows_in_sight(http: httpx.Client, page: ConsolePage) -> None:
    for number in range(300):
        http.put(f"/v0/topics/topic-{number:03d}", json={"durability": "ephemeral"}).raise_for_status()
    page.open("#/topics", "300 of 300 topics")
    page.shows("topic-000")
    assert page.evaluate("document.querySelectorAll('[role=row]').length") < 120
    page.evaluate("document.querySelector('.rows').scrollTop = 1e9")
    page.shows("topic-299")
    page.fill("Filter", "123")
    page.shows("1 of 300 topics")


def test_the_name_that_is_painted_first_goes(page: ConsolePage) -> None:
    page.shows("Nothing needs attention.")
    assert page.evaluate("document.querySelector('.first')") is None


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_no_page_has_serious_findings_of_axe_or_is_wider_than_the_window(
    http: httpx.Client, page: ConsolePage, size: str
) -> None:
    seed(http)
    page.look(size)
    found: list[str] = []
    for address, text in PAGES:
        page.open(address, text)
        found += [f"{address} {each}" for each in page.findings()]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{address} is wider than the window")
        # Only colours differ in the dark.
        page.look(size, dark=True)
        found += [f"{address} in the dark: {each}" for each in page.findings("color-contrast")]
        page.look(size)
    page.click("Keyboard shortcuts")
    found += page.findings()
    assert found == []
