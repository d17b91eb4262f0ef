"""A read of many small records left some out, and returned the records after them as if there was no gap.

A read fetches a limited number of bytes of frames, and returns a limited number of bytes of bodies. If a batch was cut
at the first limit, the second one could leave room for less than one of its frames. The read then continued with the
next batch.
"""

from __future__ import annotations

import pytest

from storage.records.values import ReadQuery
from tests.unit.storage.machine import Machine, records


@pytest.mark.parametrize("max_bytes", [1 << 16, 1 << 18, 1 << 20])
async def test_a_large_read_gives_every_record(max_bytes: int) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        for _ in range(8):
            await engine.append("t", records(3000))
        seqs: list[int] = []
        while len(seqs) < 24_000:
            found = await engine.read("t", ReadQuery(from_seq=len(seqs), limit=20_000, max_bytes=max_bytes))
            seqs += [record.seq for record in found.records]
            assert seqs == [*range(1, len(seqs) + 1)]
