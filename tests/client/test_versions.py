"""The client reports a broker that is too old."""

from __future__ import annotations

import httpx
import pytest

from broker import VERSION
from tests.client.fake_broker import FakeBroker
from topics_client import AsyncClient, BrokerTooOld, Client, UnexpectedAnswer
from topics_client.values import Health
from topics_client.versions import LOWEST_BROKER, checked


def health(version: str) -> Health:
    return Health(status="ok", version=version, uptime_ms=1)


@pytest.mark.parametrize(
    ("version", "lowest"),
    [("0.2.0", "0.2.0"), ("0.10.0", "0.9.1"), ("1", "0.9"), ("1", "1.0.0"), ("0.2.0rc1", "0.2.0"), ("0.2.1+x", "0.2")],
)
def test_a_sufficiently_new_broker_is_accepted(version: str, lowest: str) -> None:
    assert checked(health(version), lowest).version == version


@pytest.mark.parametrize(
    ("version", "lowest"), [("0.1.9", "0.2.0"), ("0.9.1", "0.10.0"), ("0", "0.1.0"), ("0.1.0.dev3", "0.1.1")]
)
def test_a_broker_that_is_too_old_is_refused_with_the_lowest_version(version: str, lowest: str) -> None:
    with pytest.raises(BrokerTooOld, match="Upgrade the broker") as caught:
        checked(health(version), lowest)
    assert (caught.value.version, caught.value.lowest) == (version, lowest)
    assert not caught.value.transient


@pytest.mark.parametrize("version", ["", "latest", "v1"])
def test_an_unreadable_version_is_an_unexpected_answer(version: str) -> None:
    with pytest.raises(UnexpectedAnswer, match="version"):
        checked(health(version))


def test_the_broker_of_this_tree_is_new_enough() -> None:
    assert checked(health(VERSION)).version == VERSION


async def test_both_clients_check_the_version_only_when_called(fake: FakeBroker) -> None:
    # Version 0 is older than every existing one.
    with Client(http=httpx.MockTransport(fake)) as client, pytest.raises(BrokerTooOld, match=LOWEST_BROKER):
        client.check_version()
    async with AsyncClient(http=httpx.MockTransport(fake)) as other:
        with pytest.raises(BrokerTooOld):
            await other.check_version()
        await other.append("t", [1])
    assert [request.url.path for request in fake.requests] == ["/v0/health"] * 2 + ["/v0/topics/t"]
