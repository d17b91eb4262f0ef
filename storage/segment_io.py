"""Looks into segments on behalf of requests: hot ones on the I/O pool, cold ones on the pool that may wait for them.

So the cold store, however slow, delays nobody but those who asked for what is there. Source: storage.md §4, §8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage.cold.store import ColdError, ColdMissing
from storage.errors import RecordCorrupt, SegmentUnreadable
from storage.log import Log
from storage.manifest import COLD, Segment
from storage.segment import names
from storage.segment.errors import SegmentCorrupt

if TYPE_CHECKING:
    from storage.core import EngineCore


class SegmentGone(Exception):
    """The segment was dropped, rewritten or moved since the manifest was looked at: it says where to look now."""


async def look_into(engine: EngineCore, log: Log, segment: Segment, job: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking job that reads this segment.

    Raises SegmentGone; RecordCorrupt, with file and offset in its detail; SegmentUnreadable, which names the segment,
    when disk or cold store do not give what the manifest says is there.
    """
    return await _translated(engine, log, segment, segment.tier == COLD, job, *arguments)


async def look_into_here(engine: EngineCore, log: Log, segment: Segment, job: Callable[..., Any], *args: Any) -> Any:
    """The same for a job that needs nothing but what is kept here of a cold segment."""
    return await _translated(engine, log, segment, False, job, *args)


async def _translated(
    engine: EngineCore, log: Log, segment: Segment, cold: bool, job: Callable[..., Any], *arguments: Any
) -> Any:
    tier, gen = segment.tier, segment.gen
    try:
        return await (engine.run_cold(job, *arguments) if cold else engine.run_io(job, *arguments))
    except (FileNotFoundError, ColdMissing) as error:
        there = engine.catalog.log(log.topic_id) is log and log.held.manifest.named(segment.first_seq) is segment
        if there and (segment.tier, segment.gen) == (tier, gen):
            raise _unreadable(segment, "it is not where it should be") from error
        raise SegmentGone from None
    except SegmentCorrupt as error:
        raise RecordCorrupt(str(error), file=error.file.rpartition("/")[2], offset=error.offset) from error
    except ColdError as error:
        raise _unreadable(segment, error.message) from error
    except OSError as error:
        raise _unreadable(segment, f"{error.strerror} (errno {error.errno})") from error


def _unreadable(segment: Segment, why: str) -> SegmentUnreadable:
    name = names.data_name(segment.first_seq, segment.gen)
    return SegmentUnreadable(f"Segment {name} cannot be read: {why}", segment=name, tier=segment.tier)
