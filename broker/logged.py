"""Every line that the server around the engine logs. See `storage.logged`, which has the engine's."""

from __future__ import annotations

from typing import Final

from storage.logged import LOGGED as OF_STORAGE
from storage.logged import Event

_NONE: Final = "Nothing."
_REPORT: Final = "A defect of the broker: report it with the traceback."

LOGGED: Final = (
    # -- start and stop ----------------------------------------------------------------------------------------------
    Event(
        "setting_ignored", "warning", "reason",
        "A variable that begins like a setting is none: misspelt, or put there by Kubernetes. `reason` says which.",
        "Correct it, or rename it.",
    ),
    Event(
        "kernel_in_python", "info", "reason",
        "The compiled kernel is not there or not wanted: frames are worked on by Python, which is slower.",
        "Install with a C compiler and Python's headers at hand. `reason` says what was missing.",
    ),
    Event(
        "listening", "info", "url docs data_dir version",
        "The port is open; recovery begins, and readiness is 503 until `ready`.", _NONE,
    ),
    Event("ready", "info", "url cluster_id", "Recovery is over; requests are served.", _NONE),
    Event(
        "cannot_start", "error", "reason [data_dir]",
        "The data directory cannot be opened; the process ends with code 1. With a traceback: a defect.",
        "`reason` names it: [Damaged file](#damaged-file) for damage.",
    ),
    Event("stopping", "info", "drain_ms", "A signal came.", _NONE),
    Event("stopping_at_once", "info", "", "Another one came: no drain.", _NONE),
    Event(
        "stopping_for_failed_storage", "error", "shard errno",
        "`TOPICS_ON_STORAGE_FAILED=exit`, and a shard has failed; the process ends with code 70.",
        "[Failed sync](#failed-sync).",
    ),
    Event(
        "unclean_stop", "error", "reason",
        "The engine could not be closed as it should; the next start recovers as after a crash.", "Look at the disk.",
    ),
    Event("stopped", "info", "exit_code", "The end.", _NONE),
    # -- requests ----------------------------------------------------------------------------------------------------
    Event("request_failed", "error", "request_id", "A request was answered 500 `internal`.", _REPORT),
    Event("command_failed", "error", "", "A command of a WebSocket was, likewise.", _REPORT),
    Event("connection_failed", "error", "", "An answer could not be sent; its connection is closed.", _REPORT),
    Event("error_code_without_status", "error", "code request_id", "A code that no table has was answered.", _REPORT),
    Event(
        "span_not_made", "error", "", "A request or move was not traced; it was carried out all the same.", _REPORT,
    ),
    Event(
        "answer_cut_short", "warning", "request_id route error",
        "What an answer consists of could not be read to its end; the client sees it incomplete.",
        "`error` says what: the cold store, or a [damaged file](#damaged-file).",
    ),
    Event(
        "client_too_slow", "warning", "[request_id] route",
        "A stream or WebSocket was closed because its client did not read for 30 s.",
        "Look at the client; it can go on from its last event.",
    ),
    Event("delivery_failed", "error", "topic", "A turn of delivery to watchers raised.", _REPORT),
    # -- Kafka clients -----------------------------------------------------------------------------------------------
    Event("kafka_listening", "info", "host port", "The port for Kafka clients is open.", _NONE),
    Event(
        "kafka_connection_refused", "warning", "why reason peer",
        "A connection of the Kafka port was closed without an answer: what came is not its protocol (`malformed`), not "
        "served here (`unsupported`), or before a key was shown (`unauthenticated`). One line a second of each kind.",
        "Look at the client; `topics_kafka_refused_total` counts all.",
    ),
    Event("proxy_instance_unreadable", "error", "key", "What is kept of a consumer instance makes no sense.", _REPORT),
    Event(
        "proxy_group_not_joined", "warning", "error group",
        "The REST Proxy is not among the Kafka clients of a group, and tries again.",
        "Look at the group; `kafka_call_failed` may say more.",
    ),
    Event("kafka_request_failed", "error", "", "A request ended in an error; its connection is closed.", _REPORT),
    Event(
        "kafka_codec_not_saved", "info", "topic codec reason",
        "How the producers of a partition compress could not be written down; its consumers get batches as before.",
        "`reason` says why: most often the disk is full.",
    ),
    Event("kafka_call_failed", "error", "", "An answer has UNKNOWN_SERVER_ERROR.", _REPORT),
    Event(
        "kafka_group_not_saved", "warning", "group error",
        "A new generation of a consumer group could not be made durable; its members were told to ask again.",
        "`error` says why: most often the disk is full.",
    ),
    Event("kafka_group_failed", "error", "group", "The members of a consumer group have to join again.", _REPORT),
    Event(
        "kafka_group_expired", "info", "group error",
        "A consumer group has been empty for `TOPICS_KAFKA_GROUP_RETENTION_S`, and was deleted with its offsets; with "
        "another `error` than NONE it was not.", _NONE,
    ),
    Event(
        "kafka_groups_not_swept", "warning", "error", "Empty consumer groups were not looked for; they will be again.",
        "`error` says why.",
    ),
    # -- the whole ---------------------------------------------------------------------------------------------------
    Event(
        "memory_refused", "warning", "limit count answers_bytes bodies_bytes",
        "Answers or bodies hold all the memory they may, and requests were refused; once a minute, with their number.",
        "Look for clients that do not read; raise the limit where memory allows.",
    ),
    Event(
        "stalled_clients_cut_off", "warning", "count answers_bytes",
        "Clients took nothing of their answers and were cut off; once a minute, with their number.",
        "Look at the clients.",
    ),
    Event(
        "pressure", "info, warning", "step was pressure",
        "The broker relieves itself, or stops doing so; a warning when it begins or ceases to refuse writes.",
        "[Pressure](#pressure).",
    ),
    Event("backup_begun", "info", "directory", "A backup begins.", _NONE),
    Event("backup_taken", "info", "directory number copied_bytes reused_bytes seconds", "It is there, durable.", _NONE),
    Event(
        "backup_failed", "error", "directory [error]",
        "There is no new backup; those before it are as they were. With a traceback: a defect.",
        "`error` says why; ask again.",
    ),
)  # fmt: skip

#: The events of a whole broker.
ALL: Final = LOGGED + OF_STORAGE
