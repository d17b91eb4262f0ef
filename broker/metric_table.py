"""Every metric of the server around the engine. See `storage.metric_table`, which has the engine's."""

from __future__ import annotations

from typing import Final

from storage import COUNTER, GAUGE, HISTOGRAM, Metric, MetricTable
from storage import METRICS as OF_STORAGE

#: The most keys that have metrics.
MAX_KEY_SERIES: Final = 1000
_KEYS: Final = f"of a key, by its place in the settings (the first {MAX_KEY_SERIES})."

METRICS: Final = MetricTable(
    # -- the process -------------------------------------------------------------------------------------------------
    Metric("topics_build_info", GAUGE, "1", "The version that runs.", "version"),
    Metric("topics_uptime_seconds", GAUGE, "seconds", "Time since the start."),
    Metric("topics_ready", GAUGE, "0 or 1", "Whether requests are served."),
    Metric("topics_process_cpu_seconds", COUNTER, "seconds", "Processor time of the broker, all threads."),
    Metric("topics_process_resident_bytes", GAUGE, "bytes", "Memory, mapped files that are in it included."),
    Metric("topics_process_open_files", GAUGE, "descriptors", "Open files and sockets."),
    Metric("topics_process_max_open_files", GAUGE, "descriptors", "Most there may be."),
    # -- pressure ----------------------------------------------------------------------------------------------------
    Metric("topics_loop_lag_seconds", GAUGE, "seconds", "How late the event loop was, when last seen."),
    Metric("topics_pressure", GAUGE, "share", "Load as a share of what means refusing writes."),
    Metric("topics_pressure_step", GAUGE, "0 to 4", "0 normal, 1 to 3 deferring work, 4 refusing writes."),
    Metric("topics_pressure_refused", COUNTER, "writes", "Writes refused under pressure."),
    # -- memory ------------------------------------------------------------------------------------------------------
    Metric("topics_memory_bytes", GAUGE, "bytes", "Held by answers or by bodies that are on their way.", "of"),
    Metric("topics_memory_max_bytes", GAUGE, "bytes", "Most they may hold; 0 = no limit.", "of"),
    Metric("topics_memory_waiting", GAUGE, "requests", "Requests that wait for memory.", "of"),
    Metric("topics_memory_refused", COUNTER, "requests", "Requests refused for want of memory.", "of"),
    Metric("topics_stalled_clients", COUNTER, "connections", "Clients cut off because they took nothing."),
    # -- requests ----------------------------------------------------------------------------------------------------
    Metric("topics_http_requests", COUNTER, "requests", "Requests answered.", "route method status"),
    Metric(
        "topics_http_request_seconds", HISTOGRAM, "seconds",
        "From the arrival of a request to its answer, waiting included.", "route method",
    ),
    Metric("topics_http_clients_gone", COUNTER, "requests", "Requests whose client left before the answer.", "route"),
    Metric(
        "topics_refused", COUNTER, "requests",
        "Requests and commands refused for want of a key, because theirs is not for that, for their pace or head.",
        "code",
    ),
    Metric(
        "topics_limit_refused", COUNTER, "requests", "Requests and commands refused because a limit was reached.",
        "limit",
    ),
    Metric("topics_parked_requests", GAUGE, "requests", "Requests waiting for records or jobs."),
    Metric("topics_parked_refused", COUNTER, "requests", "Requests refused because too many were waiting."),
    Metric("topics_key_inflight_requests", GAUGE, "requests", f"Requests under way {_KEYS}", "key"),
    Metric("topics_key_sse_connections", GAUGE, "streams", f"Open event streams {_KEYS}", "key"),
    # -- Kafka clients -----------------------------------------------------------------------------------------------
    Metric(
        "topics_kafka_request_seconds", HISTOGRAM, "seconds",
        "From the start of a Kafka client's request to its answer, waiting included.", "api",
    ),
    Metric("topics_kafka_errors", COUNTER, "errors", "Errors in answers to Kafka clients.", "api error"),
    Metric("topics_kafka_rest_instances", GAUGE, "instances", "Consumer instances of the REST Proxy."),
    Metric("topics_kafka_rest_instances_expired", COUNTER, "instances", "Those that were idle for too long."),
    Metric("topics_kafka_rest_instances_refused", COUNTER, "instances", "Those that were one too many."),
    Metric("topics_kafka_connections", GAUGE, "connections", "Open connections of Kafka clients."),
    Metric(
        "topics_kafka_refused", COUNTER, "connections",
        "Connections of Kafka clients closed without an answer: too many, or bytes or requests that are not served.",
        "why",
    ),
    Metric("topics_kafka_packed_bytes", GAUGE, "bytes", "Compressed batches kept for those who fetch the same."),
    Metric(
        "topics_kafka_packed", COUNTER, "batches",
        "Batches that were compressed for an answer, or found compressed already.", "outcome",
    ),
    Metric("topics_kafka_groups", GAUGE, "groups", "Consumer groups that somebody is in, or about to be."),
    Metric("topics_kafka_rebalances", COUNTER, "generations", "Generations of consumer groups that have begun."),
    Metric(
        "topics_kafka_slow_clients", COUNTER, "connections",
        "Kafka clients cut off for being too slow, by what they were slow at.", "phase",
    ),
    # -- connections and streams -------------------------------------------------------------------------------------
    Metric("topics_connections", GAUGE, "connections", "Open connections."),
    Metric(
        "topics_connections_refused", COUNTER, "connections", "Connections closed at once because too many were open.",
    ),
    Metric(
        "topics_slow_clients", COUNTER, "connections", "Clients cut off for being too slow, by what they were slow at.",
        "phase",
    ),
    Metric("topics_http2_floods", COUNTER, "connections", "Connections of HTTP/2 closed for floods, by what of.", "of"),
    Metric("topics_sse_connections", GAUGE, "streams", "Open event streams."),
    Metric("topics_sse_refused", COUNTER, "streams", "Event streams refused because too many were open."),
    Metric("topics_watch_sessions", GAUGE, "sessions", "Watch sessions, those without a stream too."),
    Metric("topics_watch_sessions_refused", COUNTER, "sessions", "Sessions refused: too many were there."),
    Metric("topics_watch_connections", GAUGE, "connections", "Connections that watch, streams and WebSockets."),
    Metric("topics_watch_subscriptions", GAUGE, "topics", "Topics watched, each counted for each connection."),
    Metric("topics_watch_reads", COUNTER, "reads", "Reads made for watchers, shared ones counted once."),
    Metric("topics_watch_pushed", COUNTER, "events", "Record events sent in the moment of their commit."),
    Metric("topics_watch_slow_closed", COUNTER, "connections", "Connections closed for not being read."),
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
