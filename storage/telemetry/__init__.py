"""What storage reports: its metrics, its log events, and the records that it moves by itself."""

from storage.telemetry.log_events import LOGGED, Event
from storage.telemetry.metric_table import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    MAX_TOPIC_SERIES,
    METRICS,
    Family,
    HistogramSample,
    Metric,
    MetricTable,
    Sample,
)
from storage.telemetry.tracing import HasBody, Move, Tracer, moving

__all__ = [
    "COUNTER",
    "GAUGE",
    "HISTOGRAM",
    "LOGGED",
    "MAX_TOPIC_SERIES",
    "METRICS",
    "Event",
    "Family",
    "HasBody",
    "HistogramSample",
    "Metric",
    "MetricTable",
    "Move",
    "Sample",
    "Tracer",
    "moving",
]
