"""What a process reports about itself: metrics, log events, its state to the service manager."""

from broker.telemetry import log_setup, process
from broker.telemetry.http_metrics import SECONDS, HttpMetrics, Labels, Latencies, as_json, as_text
from broker.telemetry.metric_table import DEPRECATED, MAX_KEY_SERIES, METRICS
from broker.telemetry.notify import EXTEND, Notifier

__all__ = [
    "DEPRECATED",
    "EXTEND",
    "MAX_KEY_SERIES",
    "METRICS",
    "SECONDS",
    "HttpMetrics",
    "Labels",
    "Latencies",
    "Notifier",
    "as_json",
    "as_text",
    "log_setup",
    "process",
]
