"""Configures where spans go, from OpenTelemetry's own variables (OTEL_*). Needs the extra `otel`.

The SDK itself reads the sampler, limits, batch sizes, resource attributes and the exporter's options. This module reads
which exporters to use: OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from broker import VERSION

#: The entry point group under which packages register exporters.
_GROUP: Final = "opentelemetry_traces_exporter"
_NONE: Final = "none"


class NoExporter(Exception):
    """The exporter that is configured is not installed. The message names the variable."""


def provider(environment: Mapping[str, str]) -> TracerProvider | None:
    """A provider with the configured exporters, `otlp` by default; None when OTEL_SDK_DISABLED is true.

    Raises NoExporter.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    made = TracerProvider(resource=resource(), shutdown_on_exit=False)
    for name in names(environment):
        made.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return made


def names(environment: Mapping[str, str]) -> list[str]:
    """The configured exporters, by the names of their entry points."""
    asked = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    found = [name.strip() for name in asked.split(",")]
    return [_otlp(environment) if name == "otlp" else name for name in found if name != _NONE]


def resource() -> Resource:
    """The resource that sends the spans. Its service name is topics-broker unless one is configured."""
    found = Resource.create()
    ours: dict[str, str] = {"service.version": VERSION}
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        ours[SERVICE_NAME] = "topics-broker"
    return found.merge(Resource(ours))


def _otlp(environment: Mapping[str, str]) -> str:
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def _exporter(name: str) -> SpanExporter:
    for each in entry_points(group=_GROUP, name=name):
        return each.load()()
    raise NoExporter(
        f"OTEL_TRACES_EXPORTER: no exporter named {name!r} is installed; install its package or choose another."
    )
