"""A resume whose sync fails may still be found by the next start. A pause after such a resume was acked without a
frame.

In memory the queue was still paused, so there seemed to be nothing to do. After a kill it was not paused.
"""

from __future__ import annotations

import errno

import pytest

from storage.errors import StorageFailed
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import with_jobs


async def test_a_pause_after_a_failed_resume_fails_with_storage_failed() -> None:
    async with Machine() as machine:
        engine = await with_jobs(machine, 1)
        assert await engine.queues.pause("q")
        machine.disk.fail("datasync", errno=errno.EIO)
        with pytest.raises(StorageFailed):
            await engine.queues.resume("q")
        with pytest.raises(StorageFailed):
            await engine.queues.pause("q")
