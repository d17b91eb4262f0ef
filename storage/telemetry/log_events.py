"""Every log event of storage: its name, level and fields, its meaning, and what to do.

Events are declared only here. A test compares `LOGGED` with every call that logs, and with the table of
docs/reference/events.md. An event that is logged with a traceback has the traceback as another field.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Event(NamedTuple):
    """A log event. `level`: info, warning or error, or several, separated by commas.

    `fields` are separated by spaces; a field in brackets is not always present.
    """

    name: str
    level: str
    fields: str
    means: str
    advice: str


_NONE: Final = "Nothing."
_REPORT: Final = "A defect of the broker: report it with the traceback."
_SALVAGE: Final = "Compare with a backup, and inform the owners of the data."

LOGGED: Final = (
    # -- start and recovery ------------------------------------------------------------------------------------------
    Event(
        "wal_tail_truncated", "warning", "shard file offset bytes valid_frames quarantined",
        "The log ended with bytes of unfinished writes, as a crash leaves them. They were removed; `quarantined` names "
        "their copy in `quarantine/`, unless the disk was full.",
        "After a crash or power loss: nothing. After a clean stop: check the disk.",
    ),
    Event(
        "snapshot_damaged", "error", "file error",
        "A snapshot failed its check. The start uses the previous snapshot and reads more of the log.",
        "Check the disk. No data is lost; the next snapshot replaces the damaged one.",
    ),
    Event(
        "wal_damage", "error", "file offset what",
        "Salvage (`TOPICS_RECOVERY=salvage`) found damage in a synced part of the log.", _SALVAGE,
    ),
    Event(
        "wal_skipped", "error", "file offset bytes",
        "Salvage gave up `bytes` bytes, up to the next complete batch.", _SALVAGE,
    ),
    Event(
        "records_lost", "error", "topic_id first_seq last_seq",
        "Salvage: these records are gone. Readers get a gap with reason `salvage`.", _SALVAGE,
    ),
    Event(
        "records_given_up", "error", "topic_id first_seq last_seq",
        "Salvage gave up readable records, because the end of their batch is damaged and batches are atomic.",
        "Their bytes are in `quarantine/`. " + _SALVAGE,
    ),
    Event(
        "control_frame_lost", "error", "topic_id type",
        "Salvage gave up a frame of this type with its batch: a deletion, a setting, a lease or a cursor is lost.",
        "Check the settings and consumers of the topic. Deleted records may have come back.",
    ),
    Event(
        "log_lost", "error", "topic_id first_seq last_seq",
        "Salvage: the frame that created this topic is gone, and so the whole topic is lost.", _SALVAGE,
    ),
    Event(
        "leases_not_ended", "warning", "[topic] [jobs] error",
        "The end of leases could not be written to the log: at the start (without fields: the disk was full), or when "
        "they expired or were withdrawn. The leases still hold, and the write is retried.",
        "`error` says why the log accepts no writes.",
    ),
    Event(
        "shards_changed", "info", "before after records_moved",
        "`TOPICS_WAL_SHARDS` has a new value, and the log was changed to this number of shards.", _NONE,
    ),
    Event(
        "io_backend_refused", "warning", "wanted used error",
        "The system refuses the backend of `TOPICS_IO_BACKEND`; files are written with plain system calls.",
        "Allow it (seccomp, kernel), or set `fd`.",
    ),
    Event(
        "unknown_file_set_aside", "warning", "folder moved_to",
        "The log knows no topic for these segments; they were moved to `quarantine/`.",
        "Find out where they come from, for example a partial copy of another directory. Then delete them.",
    ),
    Event(
        "partition_lost", "error", "topic partition topic_id",
        "Salvage found no data of a partition of the topic, or a cell was restored to another instant than the cell "
        "of the topic; the partition starts again, empty.",
        "If you need its records, restore a backup.",
    ),
    Event(
        "cells_to_tell", "info", "topic topic_id reason",
        "Another cell did not answer when a topic of this cell was created, changed or deleted. The message is "
        "repeated every second.",
        _NONE,
    ),
    Event(
        "partitions_not_aligned", "warning", "topic error",
        "A change of settings has not reached all partitions of the topic, because of a crash or a full disk. The "
        "settings of partition 0 are valid; the change is retried.",
        "`error` says why the log accepts no writes.",
    ),
    Event(
        "partition_not_deleted", "warning", "error",
        "The deletion of a partition that belongs to no topic any more could not be written. The next start "
        "repeats it.",
        _NONE,
    ),
    Event(
        "data_dir_open_to_others", "warning", "data_dir",
        "Other users of the machine may enter or read the data directory. An earlier version or another program "
        "created it; new directories have mode 0700, and files 0600.",
        "Run `chmod 700` on it, unless a group needs to read it.",
    ),
    Event(
        "clock_step", "warning", "step_ms",
        "The system clock jumped by more than a minute. The broker follows a jump ahead. After a jump back (below 0), "
        "its time continues from before the jump until the clock has caught up.",
        "Check NTP. After a jump ahead, ttl and delays end sooner.",
    ),
    # -- the log and the disk ----------------------------------------------------------------------------------------
    Event(
        "shard_failed", "error", "shard errno",
        "A write or sync of the log failed; the shard takes no more writes until the next start.",
        "[Failed sync](#failed-sync).",
    ),
    Event(
        "lock_not_written", "error", "error",
        "The failure of a shard could not be recorded for the next start.",
        "Set `TOPICS_TRUST_PAGE_CACHE=0` for the next start.",
    ),
    Event(
        "writer_crashed", "error", "shard",
        "A log writer raised an exception; its shard has stopped (`shard_failed`).", _REPORT,
    ),
    Event(
        "commit_not_applied", "error", "shard",
        "A committed write could not be applied; the shard has stopped (`shard_failed`). The next start applies it.",
        _REPORT,
    ),
    Event(
        "shard_close_failed", "error", "shard error",
        "At a stop, the last sync of a shard failed.", "Check the disk before the next start.",
    ),
    Event(
        "final_snapshot_failed", "warning", "error",
        "No snapshot could be written at the stop; the next start reads more of the log.",
        "Check the space on the disk.",
    ),
    Event(
        "worker_failed", "warning", "worker error retry_in_s",
        "A round of background work raised an exception; it is retried.",
        "If it repeats (`topics_worker_failures_total`), `error` has the cause, often the disk.",
    ),
    # -- segments and the cold tier ----------------------------------------------------------------------------------
    Event(
        "flush_failed", "warning", "topic_id error",
        "Records of a topic could not be moved to segments. They stay in the log, and the flush is retried.",
        "Check disk space and file descriptors (`ulimit -n`), and whether the topic is damaged: the log grows until "
        "flushing works again.",
    ),
    Event(
        "segment_broken", "error", "topic_id error",
        "A write or sync of a segment file failed. A new file is written from the log.",
        "Check the disk.",
    ),
    Event(
        "segment_sizes_assumed", "error", "topic_id error",
        "A segment cannot be read, so the sizes of its records are estimated, too high, until the records are gone or "
        "a later start can read them. `cap_records` evicts them one by one, byte caps all of them at once.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "not_packed", "warning", "topic_id first_seq error",
        "A segment could not be stored compressed, for example because the disk is full. It stays uncompressed, and no "
        "data is lost. The next attempt is after a minute.",
        "If it repeats, check the disk.",
    ),
    Event(
        "damaged_records_copied", "error", "topic_id seqs",
        "A segment with damaged records was rewritten; the new files have the same damage.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "segment_without_tags", "warning", "file offset error",
        "A segment has no index by tag, because a record is damaged. It moves to the cold tier without the index.",
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "cold_segment_missing", "error", "topic_id first_seq gen",
        "A segment is missing in the cold store.",
        "Restore the object. Until then, reads of the segment get 503.",
    ),
    Event(
        "unknown_folder_in_cold_tier", "warning", "folder",
        "The cold store has a folder of a topic that this broker does not know. The folder is not touched.",
        "If no other broker needs it, remove it.",
    ),
    # -- queues, routers, consumers ----------------------------------------------------------------------------------
    Event(
        "jobs_deferred", "warning", "topic jobs first_seq error",
        "The records of these jobs cannot be read from the disk. The jobs are retried in a minute; claims return "
        "others.",
        "Check the disk.",
    ),
    Event("claim_failed", "error", "topic", "A claim was answered 500.", _REPORT),
    Event(
        "move_refused", "warning", "topic seq moves error",
        "`moves` dead jobs, `seq` the first, could not be moved to the dead letter topic. They wait (`dead_pending`), "
        "and the move is retried.",
        "Make room in that topic: `error` has the reason of its refusal.",
    ),
    Event("move_failed", "error", "topic seq moves", "A move of dead jobs raised an unexpected exception.", _REPORT),
    Event(
        "router_blocked", "warning", "router error",
        "The destination refuses the copies of the router. They are retried, in order.",
        "Make room in the destination. Until then the source may evict records that were not copied.",
    ),
    Event(
        "router_ended", "warning", "router source reason",
        "The source of the router is in another cell and was deleted, so the router was deleted too.",
        "Nothing; or create the router again, if there is a new topic of that name.",
    ),
    Event(
        "router_not_ended", "warning", "router error",
        "A router whose source in another cell was deleted could not be deleted; this is retried every second.",
        "See `error`.",
    ),
    Event(
        "router_not_resolved", "info", "router error",
        "Cell 0 does not know whether a router exists in the cell that runs it; it asks again every second.",
        "Nothing; or find out why that cell is away.",
    ),
    Event(
        "router_not_in_graph", "error", "error",
        "Routers of cell 0 are not in the graph of all routers, because there is no room for their entries.",
        "Increase `TOPICS_MAX_STATES` and restart.",
    ),
    Event(
        "entry_not_told", "info", "topic error",
        "The cell of a topic does not know yet that the topic is to be created there; the message is repeated every "
        "10 seconds.",
        "Nothing; or find out why that cell is away.",
    ),
    Event(
        "router_behind", "warning", "router lag",
        "For a minute, the router did not catch up with its source, and its lag has grown.",
        "Write less, or give the broker more processor time. Records that the source evicts before they are copied are "
        "lost to the destination.",
    ),
    Event("router_resumed", "info", "router", "The destination accepts copies again.", _NONE),
    Event("router_failed", "error", "router", "A round of a router raised an exception; it is retried.", _REPORT),
    Event(
        "router_lost_records", "warning", "router up_to reason",
        "Records were not copied: the source had evicted them or cannot read them, or the destination can never hold "
        "them. The destination has a gap there.",
        "Depending on `reason`: more room at the source, larger limits at the destination, or for `corrupt` "
        "[Damaged file](#damaged-file).",
    ),
    Event(
        "router_cursor_not_written", "warning", "router error",
        "The position of a router could not be written. After a crash it examines some records again.",
        "`error` says why the log accepts no writes.",
    ),
    Event(
        "consumer_cursor_not_written", "warning", "[consumer] error",
        "The position of a consumer (at a stop: of several) could not be written. After a crash, some records are "
        "delivered again.",
        "`error` says why the log accepts no writes.",
    ),
    Event(
        "reclaim_failed", "warning", "topic_id error",
        "The removal of consumed records could not be written. It is retried every second.",
        "`error` says why the log accepts no writes.",
    ),
    Event(
        "reader_lost_records", "warning", "topic consumer reason gap_from gap_to",
        "Embedded: records were gone before the consumer read them.", "Larger caps, or faster readers.",
    ),
    Event(
        "corrupt_records_skipped", "warning", "topic consumer seqs",
        "Embedded: a read with `skip_corrupt` skipped damaged records.", "[Damaged file](#damaged-file).",
    ),
    # -- backups -----------------------------------------------------------------------------------------------------
    Event(
        "backup_leftovers", "warning", "directory error",
        "The backup is complete, but files of older backups could not be removed. The next backup tries again.",
        "Check the permissions and the disk of the backup directory.",
    ),
    Event("alarm_failed", "error", "topic_id", "A timer of a queue raised an error.", _REPORT),
    Event("check_failed", "warning", "cell", "A check of a cell in a bucket failed; it is repeated.", _REPORT),
    Event(
        "base_failed", "warning", "cell error",
        "A base of a cell in a bucket could not be stored, or the objects that it supersedes could not be deleted. "
        "This is retried.",
        "Check that the store answers. The log in the bucket grows meanwhile.",
    ),
    Event(
        "cell_refused", "error", "cell error",
        "The store has broken its promise to create an object once, or the clock is more than 60 s off the store's. "
        "The process no longer owns the cell.",
        "Set the clock. If the store is named, stop using it: other cells may be damaged.",
    ),
    Event(
        "cell_directory_damaged", "error", "cell topic_id segment seq records error stored",
        "The disk has given back other bytes of a segment than were written; a base found that before it stored them. "
        "`seq`: of the first damaged record. `records`: how many; 0 if a file is missing or cannot be read. `stored` "
        "false: the process ends with code 70, and the next one makes its directory anew from the bucket. Nothing "
        "acked is lost. `stored` true: the bucket has the records damaged, too. They are stored as they are, and "
        "readers are told.",
        "`stored` false: check the disk, and replace it if this repeats. True: compare with a backup, and inform "
        "the owners of the data.",
    ),
    Event(
        "cold_needs_finalize", "warning", "cell",
        "Segments of the cell do not become cold, although `TOPICS_COLD_DIR` is `bucket`: the cluster has a format "
        "that older releases read, and these do not start on cold segments.",
        "When all nodes run this release: `topics cluster finalize`. Segments move within a minute.",
    ),
    Event(
        "cell_not_given", "warning", "cell error",
        "A cell in a bucket was stopped cleanly, but its last seal could not be stored. Other processes wait "
        "until it is known to be gone.",
        "Check that the store answers.",
    ),
)  # fmt: skip
