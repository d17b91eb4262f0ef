"""The position of an endless reader, in particular when its topic is deleted and created again."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.client.fake_broker import FakeBroker
from topics_client import Client, Record, Tombstone
from topics_client.following import Follower
from topics_client.transport import reply


@pytest.fixture
def client(fake: FakeBroker) -> Client:
    return Client("http://fake", http=httpx.MockTransport(fake))


class Reader:
    """Makes a follower's calls one by one."""

    def __init__(self, fake: FakeBroker, follower: Follower) -> None:
        self._fake = fake
        self._follower = follower

    def next(self) -> list[Any]:
        call = self._follower.call()
        request = httpx.Request(call.request.method, f"http://fake{call.request.target}", content=call.request.body)
        return [_short(item) for item in call.parse(reply(self._fake(request)))]


def _short(item: Record | Tombstone) -> Any:
    return item.data if isinstance(item, Record) else item.reason


def test_the_epoch_is_read_first_and_sent_with_every_read(fake: FakeBroker, client: Client) -> None:
    client.append("t", ["a"])
    reader = Reader(fake, Follower("t", 0, {}))
    assert [reader.next(), reader.next(), reader.next()] == [[], ["a"], []]
    assert [json.loads(r.content)["epoch"] for r in fake.requests[-2:]] == [1, 1]


def test_a_known_epoch_is_not_asked_for(fake: FakeBroker, client: Client) -> None:
    client.append("t", ["a"])
    assert Reader(fake, Follower("t", 0, {"epoch": 1})).next() == ["a"]


def test_a_recreated_longer_topic_is_read_from_seq_1(fake: FakeBroker, client: Client) -> None:
    client.append("t", ["old"])
    reader = Reader(fake, Follower("t", 0, {}))
    reader.next()
    reader.next()
    client.delete_topic("t")
    client.append("t", ["new 1", "new 2", "new 3"])
    assert [reader.next(), reader.next(), reader.next()] == [["recreated"], [], ["new 1", "new 2", "new 3"]]


def test_a_topic_recreated_twice_is_read_without_a_skipped_record(fake: FakeBroker, client: Client) -> None:
    client.append("t", ["old"])
    reader = Reader(fake, Follower("t", 0, {}))
    reader.next()
    reader.next()
    client.delete_topic("t")
    client.append("t", ["second"])
    assert reader.next() == ["recreated"]
    client.delete_topic("t")
    client.append("t", ["third 1", "third 2"])
    assert [reader.next(), reader.next()] == [[], ["third 1", "third 2"]]


def test_reading_on_from_a_stored_position_repeats_no_record(fake: FakeBroker, client: Client) -> None:
    client.append("t", ["a", "b"])
    follower = Follower("t", 0, {"epoch": 1})
    Reader(fake, follower).next()
    client.append("t", ["c"])
    assert Reader(fake, Follower("t", follower.from_seq, {"epoch": 1})).next() == ["c"]
