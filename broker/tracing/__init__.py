"""Spans of what the broker does, for OpenTelemetry (the extra `otel`). Off unless TOPICS_TRACING asks for it: then
`Broker.tracing` is None, which is all that anybody looks at."""
