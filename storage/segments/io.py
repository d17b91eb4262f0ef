"""Runs reads of segments for requests: of hot ones on the I/O pool, of cold ones on a pool of their own.

A slow cold store therefore delays only requests for cold records.

Source: docs/reference/format.md#segments, docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from storage.errors import RecordCorrupt, SegmentIncomplete, SegmentUnreadable
from storage.segments import names
from storage.segments.errors import SegmentCorrupt, SegmentShort
from storage.segments.tiering import ColdError, ColdMissing
from storage.state import COLD, Log, Segment

if TYPE_CHECKING:
    from storage.log import Logs


class SegmentGone(Exception):
    """The segment was dropped, rewritten or moved since the caller read the manifest, which has its new state."""


async def run_segment_job(logs: Logs, log: Log, segment: Segment, job: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking job that reads this segment.

    Raises SegmentGone; RecordCorrupt, with file and offset in its detail (SegmentIncomplete when a file is missing or
    too short); SegmentUnreadable, which names the segment, when the disk or the cold store fails. The detail of each
    error has the topic and the seqs of the segment.
    """
    return await _translated(logs, log, segment, segment.tier == COLD, job, *arguments)


async def run_local_job(logs: Logs, log: Log, segment: Segment, job: Callable[..., Any], *args: Any) -> Any:
    """The same for a job that needs only local files, also of a cold segment."""
    return await _translated(logs, log, segment, False, job, *args)


async def _translated(
    logs: Logs, log: Log, segment: Segment, cold: bool, job: Callable[..., Any], *arguments: Any
) -> Any:
    tier, gen = segment.tier, segment.gen
    try:
        return await (logs.runtime.run_cold(job, *arguments) if cold else logs.runtime.run_io(job, *arguments))
    except (FileNotFoundError, ColdMissing) as error:
        there = logs.catalog.log(log.topic_id) is log and log.held.manifest.named(segment.first_seq) is segment
        if not there or (segment.tier, segment.gen) != (tier, gen):
            raise SegmentGone from None
        if isinstance(error, ColdMissing):
            raise _unreadable(logs, log, segment, "it is not where it should be") from error
        path = str(error.filename or names.data_name(segment.first_seq, segment.gen))
        raise _corrupt(logs, log, segment, SegmentShort(path, 0, "the file is missing")) from error
    except SegmentCorrupt as error:
        raise _corrupt(logs, log, segment, error) from error
    except ColdError as error:
        raise _unreadable(logs, log, segment, error.message) from error
    except OSError as error:
        raise _unreadable(logs, log, segment, error_text(error)) from error


def error_text(error: OSError) -> str:
    """The operating system's text for a failed call."""
    return f"{error.strerror} (errno {error.errno})"


def _corrupt(logs: Logs, log: Log, segment: Segment, error: SegmentCorrupt) -> RecordCorrupt:
    name, where = names.data_name(segment.first_seq, segment.gen), error.file.rpartition("/")[2]
    kind = SegmentIncomplete if isinstance(error, SegmentShort) else RecordCorrupt
    return kind(
        f"Segment {name} is damaged: {error.what} ({where}, offset {error.offset}).",
        **_which(logs, log, segment),
        file=where,
        offset=error.offset,
    )


def _unreadable(logs: Logs, log: Log, segment: Segment, why: str) -> SegmentUnreadable:
    name = names.data_name(segment.first_seq, segment.gen)
    return SegmentUnreadable(
        f"Segment {name} cannot be read: {why}",
        **_which(logs, log, segment),
        segment=name,
        tier=segment.tier,
    )


def _which(logs: Logs, log: Log, segment: Segment) -> dict[str, Any]:
    """Detail of an error: the topic, and the seqs `from_seq` to `to_seq`, both included."""
    topic = logs.catalog.by_id.get(log.topic_id)
    named = {} if topic is None else {"topic": topic.name}
    return {**named, "from_seq": segment.first_seq, "to_seq": segment.end_seq - 1}
