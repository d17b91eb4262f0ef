"""After a record with meta every start failed, because msgspec accepts only null where `Raw | None` is declared."""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, ReadQuery, TopicConfig
from tests.support.crash_run import SMALL
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk


@pytest.mark.parametrize("meta", [b'{"a": 1}', b"[]", b'"x"', b"null", b"7"])
async def test_records_with_meta_are_there_after_a_restart(meta: bytes) -> None:
    disk, config = SimDisk(), TopicConfig(durability=Durability.FSYNC)
    engine = Engine("/data", SMALL, fs=disk, clock=FakeClock(), threaded=False)
    await engine.start()
    await engine.append("t", [NewRecord(msgspec.Raw(b"1"), meta=msgspec.Raw(meta))], config=config)
    again = Engine("/data", SMALL, fs=disk.process_kill(), clock=FakeClock(), threaded=False)
    await again.start()
    assert (await again.read("t", ReadQuery())).records[0].body == b'{"data":1,"meta":%b}' % meta
    assert again.state("t").bytes == 1 + len(meta)
