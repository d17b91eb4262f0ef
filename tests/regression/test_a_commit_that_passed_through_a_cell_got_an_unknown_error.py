"""A cell passed a commit on to a third one, which could not be reached. The coordinator took that for a defect, and the
client got UNKNOWN_SERVER_ERROR, at which aiokafka stops reading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.cells import Peers, PeerServer
from broker.kafka.errors import ErrorCode
from broker.kafka.groups import code_of_commit
from storage import NotReady, ShuttingDown, StorageError


def test_a_third_cell_that_is_away_is_no_defect(tmp_path: Path) -> None:
    async def scenario() -> None:
        to_third = Peers({2: tmp_path / "cell-02.peer"})

        async def pass_on(argument: Any) -> Any:
            return await to_third.call(2, "commit", argument)

        server = PeerServer(tmp_path / "cell-01.peer", {"commit": pass_on})
        await server.start()
        peers = Peers({1: tmp_path / "cell-01.peer"})
        with pytest.raises(StorageError) as caught:
            await peers.call(1, "commit", None)
        assert code_of_commit(caught.value) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (caught.value.outcome, caught.value.detail["cell"]) == ("none", 2)
        await to_third.close()
        await peers.close()
        await server.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [NotReady("It recovers."), ShuttingDown("It stops.")])
def test_a_cell_that_recovers_or_stops_is_no_defect(tmp_path: Path, error: StorageError) -> None:
    async def refuse(argument: Any) -> Any:
        raise error

    async def scenario() -> None:
        server = PeerServer(tmp_path / "cell-01.peer", {"commit": refuse})
        await server.start()
        peers = Peers({1: tmp_path / "cell-01.peer"})
        with pytest.raises(StorageError, match=error.message) as caught:
            await peers.call(1, "commit", None)
        assert code_of_commit(caught.value) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert caught.value.outcome == error.outcome
        await peers.close()
        await server.stop()

    asyncio.run(scenario())
