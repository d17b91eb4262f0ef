"""Spans of the broker's work for OpenTelemetry (the extra `otel`). Off unless TOPICS_TRACING is set: `Broker.tracing`
is then None, and nothing else of this package runs."""
