"""The metrics of the server. Those of the engine are in `storage.telemetry.metric_table`."""

from __future__ import annotations

from typing import Final

from storage import COUNTER, GAUGE, HISTOGRAM, Metric, MetricTable
from storage import METRICS as OF_STORAGE

#: The most keys that have metrics.
MAX_KEY_SERIES: Final = 1000
_KEYS: Final = f"of a key, by its position in the settings (the first {MAX_KEY_SERIES})."

METRICS: Final = MetricTable(
    # -- the process -------------------------------------------------------------------------------------------------
    Metric("topics_build_info", GAUGE, "1", "The running version.", "version"),
    Metric("topics_uptime_seconds", GAUGE, "seconds", "Time since the start."),
    Metric("topics_ready", GAUGE, "0 or 1", "Whether requests are served."),
    Metric("topics_process_cpu_seconds", COUNTER, "seconds", "Processor time of the broker, all threads."),
    Metric("topics_process_resident_bytes", GAUGE, "bytes", "Resident memory, including mapped files."),
    Metric("topics_process_open_files", GAUGE, "descriptors", "Open files and sockets."),
    Metric(
        "topics_process_max_open_files", GAUGE, "descriptors",
        "The most open files and sockets that the system allows.",
    ),
    Metric(
        "topics_process_restarts", COUNTER, "restarts",
        "How often a process of a set of cells was started again since the start of the set.", "process",
    ),
    # -- other nodes of a cluster ------------------------------------------------------------------------------------
    Metric(
        "topics_cluster_links", GAUGE, "connections",
        "Open connections to other nodes (`out`) and from them (`in`).", "direction",
    ),
    Metric(
        "topics_cluster_links_opened", COUNTER, "connections",
        "Connections that were passed on to other nodes (`out`), and to cells of this one (`in`).", "direction",
    ),
    Metric(
        "topics_cluster_link_bytes", COUNTER, "bytes", "Bytes to other nodes and from them, before encryption.",
        "direction",
    ),
    Metric(
        "topics_cluster_links_refused", COUNTER, "connections",
        "Connections at the cluster port that were refused.", "reason",
    ),
    Metric(
        "topics_cluster_links_failed", COUNTER, "connections",
        "Connections to other nodes that could not be made.", "reason",
    ),
    Metric("topics_cluster_nodes", GAUGE, "nodes", "Nodes as this one sees them, itself included.", "state"),
    Metric(
        "topics_cluster_cells_without_owner", GAUGE, "cells", "Cells of the cluster of which no owner is known.",
    ),
    Metric("topics_cluster_takeovers", COUNTER, "cells", "Cells that this node has taken over since its start."),
    Metric("topics_cluster_handovers", COUNTER, "cells", "Cells that this node has given to others since its start."),
    Metric(
        "topics_cluster_cells_lost", COUNTER, "cells",
        "Processes of cells that ended because they were not the owner any more (fenced), because the bucket did not "
        "answer (store_silent), or because the bucket or the clock was wrong (store_refused).",
        "reason",
    ),
    # -- pressure ----------------------------------------------------------------------------------------------------
    Metric("topics_loop_lag_seconds", GAUGE, "seconds", "How late the event loop was at the last sample."),
    Metric("topics_pressure", GAUGE, "share", "Load, as a share of the load at which writes are refused."),
    Metric("topics_pressure_step", GAUGE, "0 to 4", "0 normal, 1 to 3 deferring work, 4 refusing writes."),
    Metric("topics_pressure_refused", COUNTER, "writes", "Writes refused under pressure."),
    # -- memory ------------------------------------------------------------------------------------------------------
    Metric("topics_memory_bytes", GAUGE, "bytes", "Memory of answers, or of bodies of requests in flight.", "of"),
    Metric("topics_memory_max_bytes", GAUGE, "bytes", "The most memory for them; 0 = no limit.", "of"),
    Metric("topics_memory_waiting", GAUGE, "requests", "Requests that wait for memory.", "of"),
    Metric("topics_memory_refused", COUNTER, "requests", "Requests refused because of too little memory.", "of"),
    Metric(
        "topics_stalled_clients", COUNTER, "connections",
        "Clients disconnected because they received nothing while memory for answers was short.",
    ),
    # -- requests ----------------------------------------------------------------------------------------------------
    Metric("topics_http_requests", COUNTER, "requests", "Requests answered.", "route method status"),
    Metric(
        "topics_http_request_seconds", HISTOGRAM, "seconds",
        "Time from the arrival of a request to its answer, including waits.", "route method",
    ),
    Metric(
        "topics_http_clients_gone", COUNTER, "requests",
        "Requests whose client disconnected before the answer.", "route",
    ),
    Metric(
        "topics_refused", COUNTER, "requests",
        "Requests and commands refused: no key, a key without permission, a client too slow, an invalid head.",
        "code",
    ),
    Metric(
        "topics_limit_refused", COUNTER, "requests", "Requests and commands refused because a limit was reached.",
        "limit",
    ),
    Metric("topics_parked_requests", GAUGE, "requests", "Requests that wait for records or jobs."),
    Metric("topics_parked_refused", COUNTER, "requests", "Requests refused because too many waited."),
    Metric("topics_key_inflight_requests", GAUGE, "requests", f"Requests in flight {_KEYS}", "key"),
    Metric("topics_key_sse_connections", GAUGE, "streams", f"Open event streams {_KEYS}", "key"),
    # -- Kafka clients -----------------------------------------------------------------------------------------------
    Metric(
        "topics_kafka_request_seconds", HISTOGRAM, "seconds",
        "Time from the start of a Kafka client's request to its answer, including waits.", "api",
    ),
    Metric("topics_kafka_errors", COUNTER, "errors", "Errors in answers to Kafka clients.", "api error"),
    Metric("topics_kafka_rest_instances", GAUGE, "instances", "Consumer instances of the REST Proxy."),
    Metric(
        "topics_kafka_rest_instances_expired", COUNTER, "instances",
        "Consumer instances deleted because they were idle for too long.",
    ),
    Metric(
        "topics_kafka_rest_instances_refused", COUNTER, "instances",
        "Consumer instances refused because there were too many.",
    ),
    Metric("topics_kafka_connections", GAUGE, "connections", "Open connections of Kafka clients."),
    Metric(
        "topics_kafka_refused", COUNTER, "connections",
        "Connections of Kafka clients closed without an answer: too many connections, or an unsupported request.",
        "why",
    ),
    Metric(
        "topics_kafka_packed_bytes", GAUGE, "bytes",
        "Cached compressed batches, for consumers that fetch the same records.",
    ),
    Metric(
        "topics_kafka_packed", COUNTER, "batches",
        "Batches that were compressed for an answer (made), or found in the cache (found).", "outcome",
    ),
    Metric(
        "topics_kafka_groups", GAUGE, "groups",
        "Consumer groups in memory: those with members, or with a member that joins.",
    ),
    Metric("topics_kafka_rebalances", COUNTER, "generations", "Generations of consumer groups."),
    Metric(
        "topics_kafka_slow_clients", COUNTER, "connections",
        "Kafka clients disconnected because they were too slow, by phase.", "phase",
    ),
    # -- connections and streams -------------------------------------------------------------------------------------
    Metric("topics_connections", GAUGE, "connections", "Open connections."),
    Metric(
        "topics_connections_refused", COUNTER, "connections", "Connections closed at once because too many were open.",
    ),
    Metric(
        "topics_slow_clients", COUNTER, "connections", "Clients disconnected because they were too slow, by phase.",
        "phase",
    ),
    Metric(
        "topics_http2_floods", COUNTER, "connections",
        "HTTP/2 connections closed because of too many frames, by kind.", "of",
    ),
    Metric("topics_sse_connections", GAUGE, "streams", "Open event streams."),
    Metric("topics_sse_refused", COUNTER, "streams", "Event streams refused because too many were open."),
    Metric("topics_watch_sessions", GAUGE, "sessions", "Watch sessions, including those without a stream."),
    Metric("topics_watch_sessions_refused", COUNTER, "sessions", "Watch sessions refused because there were too many."),
    Metric("topics_watch_connections", GAUGE, "connections", "Connections that watch: event streams and WebSockets."),
    Metric("topics_watch_subscriptions", GAUGE, "topics", "Watched topics, counted for each connection."),
    Metric("topics_watch_reads", COUNTER, "reads", "Reads for watchers; a shared read counts once."),
    Metric("topics_watch_pushed", COUNTER, "events", "Record events that were sent at once when they were committed."),
    Metric(
        "topics_watch_slow_closed", COUNTER, "connections",
        "Watching connections closed because their clients did not read.",
    ),
    Metric(
        "topics_watch_deliveries_waiting", GAUGE, "deliveries", "Deliveries that wait for other deliveries.",
        former="topics_watch_turns_waiting",
    ),
    Metric(
        "topics_watch_delivery_waits", COUNTER, "deliveries", "Deliveries that had to wait for other deliveries.",
        former="topics_watch_turn_waits",
    ),
)  # fmt: skip

#: Renamed metrics under their former names, by the new name.
DEPRECATED: Final = {each.name: each.deprecated for each in (*METRICS, *OF_STORAGE) if each.former}
#: The metrics of a whole broker.
ALL: Final = (*METRICS, *OF_STORAGE, *DEPRECATED.values())
