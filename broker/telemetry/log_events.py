"""Every event that the server around the engine logs. `storage.telemetry.log_events` has those of the engine."""

from __future__ import annotations

from typing import Final

from storage import LOGGED as OF_STORAGE
from storage import Event

_NONE: Final = "Nothing."
_REPORT: Final = "A defect of the broker: report it with the traceback."

LOGGED: Final = (
    # -- start and stop ----------------------------------------------------------------------------------------------
    Event(
        "setting_ignored", "warning", "reason",
        "An environment variable begins with TOPICS_ but is no setting: misspelt, or set by Kubernetes. See `reason`.",
        "Correct it, or rename it.",
    ),
    Event(
        "kernel_in_python", "info", "reason",
        "The compiled kernel is missing or disabled, so Python handles frames, which is slower.",
        "`reason` says what is missing. Install a C compiler and Python's headers, then the broker again.",
    ),
    Event(
        "listening", "info", "url docs data_dir version",
        "The port is open; recovery begins, and readiness is 503 until `ready`.", _NONE,
    ),
    Event(
        "listening_directly", "info", "url",
        "A cell has a port of its own for clients that reach it without the gateway.", _NONE,
    ),
    Event("ready", "info", "url cluster_id", "Recovery is over; requests are served.", _NONE),
    Event(
        "cannot_start", "error", "reason [data_dir]",
        "The data directory cannot be opened. The process ends with code 1. With a traceback: a defect.",
        "`reason` names it: [Damaged file](#damaged-file) for damage.",
    ),
    Event("stopping", "info", "drain_ms", "A signal arrived; the broker drains.", _NONE),
    Event("stopping_at_once", "info", "", "A second signal arrived; the drain ends.", _NONE),
    Event(
        "stopping_for_failed_storage", "error", "shard errno",
        "`TOPICS_ON_STORAGE_FAILED=exit`, and a shard has failed; the process ends with code 70.",
        "[Failed sync](#failed-sync).",
    ),
    Event(
        "unclean_stop", "error", "reason",
        "The engine could not be closed cleanly; the next start recovers as after a crash.", "Check the disk.",
    ),
    Event("stopped", "info", "exit_code", "The process ends.", _NONE),
    # -- cells -------------------------------------------------------------------------------------------------------
    Event("cells_ready", "info", "url cells set_id", "Every cell of the set has recovered and serves requests.", _NONE),
    Event(
        "process_not_started", "error", "process error again_in_s",
        "A process could not be started, for want of memory or of process numbers. It is tried again.",
        "Give the machine more memory, or allow more processes (`pids.max`, `ulimit -u`).",
    ),
    Event(
        "process_ended", "error", "process exit_code again_in_s",
        "A process of the set has ended and is restarted. A cell recovers as after a crash, with all acknowledged "
        "writes.",
        "Read the lines that it logged before.",
    ),
    Event(
        "link_refused", "warning", "peer reason error others",
        "Somebody connected to the cluster port who is no node of this cluster, or whose certificate is not good: "
        "`handshake`, `slow_handshake`, `first_line`, `other_cluster`, `too_many`. Nothing was read or done. At most "
        "one line a second; `others` counts those left out.",
        "If `peer` is a node: compare its secret, its certificates and its clock. If not: close the port to it.",
    ),
    Event(
        "link_failed", "warning", "node address reason error others",
        "No connection to another node: `unreachable`, or a `handshake` that failed. Requests for its cells are "
        "refused with 503. At most one line a second; `others` counts those left out.",
        "Look whether the node runs, and compare secrets and clocks.",
    ),
    Event(
        "link_certificate_not_renewed", "error", "reason",
        "The certificate for other nodes could not be replaced; the one before stays in use until it expires.",
        "`reason` says what is wrong with the files.",
    ),
    Event(
        "process_cannot_run", "error", "process exit_code",
        "A process of the set ended at its first start, and would end in the same way again. The set stops.",
        "It has logged the reason.",
    ),
    Event(
        "peer_call_failed", "error", "method", "A call of another cell was answered with the code `internal`.", _REPORT,
    ),
    Event(
        "peer_frame_refused", "error", "reason",
        "Another cell sent an invalid frame; its connection was closed.", _REPORT,
    ),
    Event(
        "peer_connection_lost", "warning", "cell reason",
        "The connection to another cell broke. Calls in progress failed; the next call reconnects.",
        "Check the log of that cell.",
    ),
    # -- clusters ----------------------------------------------------------------------------------------------------
    Event(
        "cell_waiting", "info", "",
        "The process of a cell was started, and waits until it may own the cell.", _NONE,
    ),
    Event("cell_taken", "info", "generation", "The process owns the cell, and has recovered it.", _NONE),
    Event(
        "cell_lost", "error", "error reason",
        "The process does not own its cell any more, or the bucket has not answered for so long that it cannot know. "
        "It ends with code 70 to 73. What it had acknowledged is there.",
        "70: look for `cell_directory_damaged`. 71: another node took the cell over; look why this one was silent. 72: "
        "check the bucket. 73: see `reason`.",
    ),
    Event(
        "process_killed", "error", "process reason",
        "A node has killed one of its processes that hung. `silent`: the process of a cell has answered nothing for "
        "10 s. `not_started`: it has said nothing for two minutes. `not_ended`: it has not ended 40 s after its drain, "
        "or, after a second signal, sooner. While the node does not stop, another process serves the cell.",
        "Look what it waited for: a disk or network file system that does not answer, or somebody who stopped it.",
    ),
    Event(
        "cell_not_known", "warning", "generation known",
        "The process serves its cell, but for 30 s its node has not written into `owners.json` that it does. Kafka "
        "clients cannot connect yet. `known`: the owner that the file names.",
        "Look whether the node runs, and reaches the bucket (`store_silent`).",
    ),
    Event("cell_given", "info", "cell node", "A node gives a cell to another one.", _NONE),
    Event(
        "cell_port_lost", "error", "cell reason",
        "The port of a cell cannot be bound again. The cell is served through the gateway.",
        "End the program that uses the port, and restart the node.",
    ),
    Event(
        "store_silent", "warning", "error", "The bucket does not answer the node, which goes on trying.",
        "Check the bucket and the credentials.",
    ),
    # -- requests ----------------------------------------------------------------------------------------------------
    Event("request_failed", "error", "request_id", "A request was answered 500 `internal`.", _REPORT),
    Event("command_failed", "error", "", "A WebSocket command was answered with the code `internal`.", _REPORT),
    Event("connection_failed", "error", "", "An answer could not be sent, and its connection was closed.", _REPORT),
    Event(
        "error_code_without_status", "error", "code request_id",
        "An answer has an error code that is missing in the table of statuses.", _REPORT,
    ),
    Event(
        "span_not_made", "error", "", "A request or move has no span. It was executed.", _REPORT,
    ),
    Event(
        "answer_cut_short", "warning", "request_id route error",
        "The records of an answer could not all be read; the client received a part of the answer.",
        "See `error`: the cold store, or a [damaged file](#damaged-file).",
    ),
    Event(
        "client_too_slow", "warning", "[request_id] route",
        "A stream or WebSocket was closed because its client did not read for 30 s.",
        "Check the client; it can continue after its last event.",
    ),
    Event("delivery_failed", "error", "topic", "A delivery to watchers raised an exception.", _REPORT),
    # -- Kafka clients -----------------------------------------------------------------------------------------------
    Event("kafka_listening", "info", "host port", "The port for Kafka clients is open.", _NONE),
    Event(
        "kafka_connection_refused", "warning", "why reason peer",
        "A connection of the Kafka port was closed without an answer: its request is malformed (`malformed`) or not "
        "supported (`unsupported`), came before a key (`unauthenticated`), or needs a cell that is away "
        "(`unavailable`). One line a second for each kind.",
        "Check the client; `topics_kafka_refused_total` counts all of them.",
    ),
    Event(
        "proxy_instance_unreadable", "error", "key", "The stored state of a consumer instance cannot be read.", _REPORT,
    ),
    Event(
        "proxy_group_not_joined", "warning", "error group",
        "The REST Proxy could not join a consumer group; it tries again.",
        "Check the group; `kafka_call_failed` may say more.",
    ),
    Event("kafka_request_failed", "error", "", "A request ended in an error; its connection is closed.", _REPORT),
    Event(
        "kafka_codec_not_saved", "info", "topic codec reason",
        "The new codec of a partition's producers could not be saved; consumers get batches in the previous codec.",
        "`reason` says why: most often the disk is full.",
    ),
    Event("kafka_call_failed", "error", "", "A request was answered with UNKNOWN_SERVER_ERROR.", _REPORT),
    Event(
        "kafka_group_not_saved", "warning", "group error",
        "A new generation of a consumer group could not be saved; its members retry.",
        "`error` says why: most often the disk is full.",
    ),
    Event("kafka_group_failed", "error", "group", "A consumer group failed; its members have to join again.", _REPORT),
    Event(
        "kafka_group_expired", "info", "group error",
        "A consumer group was empty for `TOPICS_KAFKA_GROUP_RETENTION_S`, and was deleted with its offsets. If "
        "`error` is not NONE, the deletion failed.", _NONE,
    ),
    Event(
        "kafka_groups_not_swept", "warning", "error", "The search for expired consumer groups failed; it is repeated.",
        "`error` says why.",
    ),
    # -- the whole ---------------------------------------------------------------------------------------------------
    Event(
        "memory_refused", "warning", "limit count answers_bytes bodies_bytes",
        "Requests were refused, because answers or bodies hold all the memory that they may. At most one line a "
        "minute, with the number of refusals.",
        "Look for clients that do not read; raise the limit if memory allows.",
    ),
    Event(
        "stalled_clients_cut_off", "warning", "count answers_bytes",
        "Clients that did not read their answers were disconnected. At most one line a minute, with their number.",
        "Check the clients.",
    ),
    Event(
        "pressure", "info, warning", "step was pressure",
        "The broker begins or stops shedding load. It is a warning when the broker begins or stops refusing writes.",
        "[Pressure](#pressure).",
    ),
    Event(
        "sample_failed", "error", "",
        "A sample of the figures for the overview failed; it is left out.", _REPORT,
    ),
    Event("backup_begun", "info", "directory", "A backup has begun.", _NONE),
    Event(
        "backup_taken", "info", "directory number copied_bytes reused_bytes seconds",
        "The backup is complete and durable.", _NONE,
    ),
    Event(
        "backup_failed", "error", "directory [error]",
        "The backup failed. Earlier backups are unchanged. With a traceback: a defect.",
        "See `error`, then repeat it.",
    ),
    # -- cells -------------------------------------------------------------------------------------------------------
    Event(
        "bad_answer_of_cell", "error", "cell reason",
        "A cell sent the gateway an invalid answer. The client got 503.",
        "A defect of the broker: report it.",
    ),
)  # fmt: skip

#: The events of a whole broker.
ALL: Final = LOGGED + OF_STORAGE
