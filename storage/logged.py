"""Every line that storage logs: its name, level and fields, what it means, what there is to do.

`LOGGED` is the one place where an event is declared. A test holds it to every call that logs, and the table of
docs/reference/events.md to it. Fields come as they are named here; what is logged with a traceback has it, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Event(NamedTuple):
    """A line in the log. `level`: info, warning or error, or several that are tried in this order, by a comma.

    `fields` are separated by spaces; one in brackets is there only where it is known.
    """

    name: str
    level: str
    fields: str
    means: str
    advice: str


_NONE: Final = "Nothing."
_REPORT: Final = "A defect of the broker: report it with the traceback."
_SALVAGE: Final = "Compare with a backup; tell those whose data it is."

LOGGED: Final = (
    # -- start and recovery ------------------------------------------------------------------------------------------
    Event(
        "wal_tail_truncated", "warning", "shard file offset bytes valid_frames quarantined",
        "Behind the last write that was acked the log had bytes of unfinished ones, as a crash leaves them. They are "
        "cut off; `quarantined` is the copy that is kept, unless the disk was full.",
        "Nothing after a crash or power loss. After a clean stop: look at the disk.",
    ),
    Event(
        "snapshot_damaged", "error", "file error",
        "A snapshot fails its check; the one before and more of the log are used.",
        "Look at the disk. Nothing is lost so far; the next snapshot replaces it.",
    ),
    Event(
        "wal_damage", "error", "file offset what",
        "With `TOPICS_RECOVERY=salvage`: damage in what had been synced.", _SALVAGE,
    ),
    Event(
        "wal_skipped", "error", "file offset bytes",
        "Salvage: so many bytes are given up, up to where whole batches begin again.", _SALVAGE,
    ),
    Event(
        "records_lost", "error", "topic_id first_seq last_seq",
        "Salvage: these records are gone. Readers are told, by a gap with reason `salvage`.", _SALVAGE,
    ),
    Event(
        "records_given_up", "error", "topic_id first_seq last_seq",
        "Salvage: these were readable, but of a batch whose end is not; a batch is there whole or not at all.",
        "The copy in `quarantine/` has them. " + _SALVAGE,
    ),
    Event(
        "control_frame_lost", "error", "topic_id type",
        "Salvage: what such a frame said was given up with its batch: a deletion, a setting, a lease, a cursor.",
        "Look at the settings and consumers of the topic; what was deleted may be there again.",
    ),
    Event(
        "log_lost", "error", "topic_id first_seq last_seq",
        "Salvage: the frame that made this topic is gone, and all of the topic with it.", _SALVAGE,
    ),
    Event(
        "leases_not_ended", "warning", "[topic] [jobs] error",
        "That leases have ended could not be written to the log: at the start (without fields: the disk was full), or "
        "when they ran out or were withdrawn. They stand, and it is tried again.",
        "See why the log takes no writes: `error` says it.",
    ),
    Event(
        "shards_changed", "info", "before after records_moved",
        "`TOPICS_WAL_SHARDS` has another value; the directory is laid out anew.", _NONE,
    ),
    Event(
        "io_backend_refused", "warning", "wanted used error",
        "The system refuses what `TOPICS_IO_BACKEND` asks for; files are written the plain way.",
        "Allow it (seccomp, kernel), or set `fd`.",
    ),
    Event(
        "unknown_file_set_aside", "warning", "folder moved_to",
        "Segments of no topic that the log knows; they are moved to `quarantine/`.",
        "Find out who put them there, e.g. a copy of part of another directory. Then delete them.",
    ),
    Event(
        "partition_lost", "error", "topic partition topic_id",
        "Salvage found nothing of a partition that its topic counts; it begins anew and empty.",
        "Restore a backup, if its records are needed.",
    ),
    Event(
        "partitions_not_aligned", "warning", "topic error",
        "Partitions of the topic still have other settings than partition 0, which counts: a crash, or a full disk, "
        "came between. It is tried again.",
        "See why the log takes no writes: `error` says it.",
    ),
    Event(
        "partition_not_deleted", "warning", "error",
        "The deletion of a partition could not be written; its topic is deleted, or never counted it. The next start "
        "does it.",
        _NONE,
    ),
    Event(
        "data_dir_open_to_others", "warning", "data_dir",
        "Other users of the machine may enter or read the data directory: an earlier version made it, or somebody "
        "else. New directories are 0700, files 0600.",
        "`chmod 700` it, unless a group is to read there.",
    ),
    Event(
        "clock_step", "warning", "step_ms",
        "The system's clock has jumped by more than a minute. A jump ahead is followed; one back (below 0) is "
        "not, until the clock has caught up.",
        "Look at NTP. After a jump ahead ttl and delays are over sooner.",
    ),
    # -- the log and the disk ----------------------------------------------------------------------------------------
    Event(
        "shard_failed", "error", "shard errno",
        "A write or sync of the log failed; the shard takes no more writes until the next start.",
        "[Failed sync](#failed-sync).",
    ),
    Event(
        "lock_not_written", "error", "error",
        "That a shard has failed could not be noted for the next start.",
        "Start the next time with `TOPICS_TRUST_PAGE_CACHE=0`, once.",
    ),
    Event("writer_crashed", "error", "shard", "A log writer raised; its shard has stopped (`shard_failed`).", _REPORT),
    Event(
        "commit_not_applied", "error", "shard",
        "What is in the log could not be taken in; the shard has stopped (`shard_failed`). A start reads it anew.",
        _REPORT,
    ),
    Event(
        "shard_close_failed", "error", "shard error",
        "The last sync of a shard failed, at a stop.", "Look at the disk before the next start.",
    ),
    Event(
        "final_snapshot_failed", "warning", "error",
        "No snapshot at the stop; the next start reads more of the log.", "Look at the room on the disk.",
    ),
    Event(
        "worker_failed", "warning", "worker error retry_in_s",
        "A round of background work raised; it is tried again.",
        "When it stays (`topics_worker_failures_total`): `error` says what is in the way, often the disk.",
    ),
    # -- segments and the cold tier ----------------------------------------------------------------------------------
    Event(
        "flush_failed", "warning", "topic_id error",
        "Records of a topic could not be moved to segments; they stay in the log, and it is tried again.",
        "Look at room and descriptors (`ulimit -n`): the log grows meanwhile.",
    ),
    Event(
        "segment_broken", "error", "topic_id error",
        "A write or sync of a segment's file failed; a new one is made of what the log still has.",
        "Look at the disk.",
    ),
    Event(
        "segment_sizes_assumed", "error", "topic_id error",
        "A cap evicts, or a start counts, records of a segment that cannot be read: one by one by `cap_records`, all "
        "of them at once by bytes, and the topic's bytes count them for more than they are, until they are gone or a "
        "later start can read them.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "not_packed", "warning", "topic_id first_seq error",
        "A segment could not be stored compressed, for want of room say; it stays as it is, and nothing is lost. For a "
        "minute none is tried.",
        "Look at the disk when it repeats.",
    ),
    Event(
        "damaged_records_copied", "error", "topic_id seqs",
        "Records that fail their check were in a segment that was written anew; they are as damaged as they were.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "segment_without_tags", "warning", "file offset error",
        "A damaged record keeps a segment from having an index by tag; it moves to the cold tier without.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "cold_segment_missing", "error", "topic_id first_seq gen",
        "The cold store does not have a segment that it should.",
        "Bring the object back. Reads of it are answered 503 until then.",
    ),
    Event(
        "unknown_folder_in_cold_tier", "warning", "folder",
        "The cold store has a folder of a topic that this broker does not know; it is left alone.",
        "Remove it if it is nobody's.",
    ),
    # -- queues, routers, consumers ----------------------------------------------------------------------------------
    Event(
        "jobs_deferred", "warning", "topic jobs first_seq error",
        "The disk does not give these jobs' records: they are claimed again in a minute, the others go on.",
        "Look at the disk.",
    ),
    Event("claim_failed", "error", "topic", "A claim was answered 500.", _REPORT),
    Event(
        "move_refused", "warning", "topic seq moves error",
        "So many dead jobs, this one first, could not be moved to the dead letter topic; they wait (`dead_pending`),"
        " and are tried again.",
        "Give that topic room: `error` says what it refused for.",
    ),
    Event("move_failed", "error", "topic seq moves", "The same, for a reason that should not be.", _REPORT),
    Event(
        "router_blocked", "warning", "router error",
        "The destination does not take the router's copies; they are tried again in order.",
        "Give the destination room: until then it is behind, and the source may evict what was not copied.",
    ),
    Event(
        "router_behind", "warning", "router lag",
        "For a minute the router has not come up with its source, and is further behind than before.",
        "Write less, or give the broker more processor: what the source evicts before it is copied is lost to dest.",
    ),
    Event("router_resumed", "info", "router", "The destination takes copies again.", _NONE),
    Event("router_failed", "error", "router", "A router's round raised; it is tried again.", _REPORT),
    Event(
        "router_lost_records", "warning", "router up_to reason",
        "What the source had evicted, cannot read any more, or the destination can never hold was not copied. The "
        "destination has a gap there.",
        "By `reason`: more room at the source, or larger limits at the destination; `corrupt`: "
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "router_cursor_not_written", "warning", "router error",
        "Where a router stands could not be written; after a crash it examines that much again.",
        "See why the log takes no writes: `error` says it.",
    ),
    Event(
        "consumer_cursor_not_written", "warning", "[consumer] error",
        "The same of a consumer (at a stop: of any): after a crash it reads that much again.",
        "See why the log takes no writes: `error` says it.",
    ),
    Event(
        "reclaim_failed", "warning", "topic_id error",
        "That consumed records may go could not be written; it is tried again every second.",
        "See why the log takes no writes: `error` says it.",
    ),
    Event(
        "reader_lost_records", "warning", "topic consumer reason gap_from gap_to",
        "Embedded: a cursor has passed records that were gone before it came.", "More room, or faster readers.",
    ),
    Event(
        "corrupt_records_skipped", "warning", "topic consumer seqs",
        "Embedded: a cursor has passed records that fail their check.", "[Damaged file](#damaged-file).",
    ),
    # -- backups -----------------------------------------------------------------------------------------------------
    Event(
        "backup_leftovers", "warning", "directory error",
        "The backup is there, but what it no longer needs could not be removed; the next one tries again.",
        "Look at the rights and the disk of the backups.",
    ),
)  # fmt: skip
