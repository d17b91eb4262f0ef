"""Whether to trace, and where to: the setting, the extra, the variables of OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from broker import VERSION
from broker.settings import Settings, SettingsError
from broker.tracing.provider import NoExporter, names, provider, resource
from broker.tracing.spans import Tracing
from broker.tracing.start import start
from tests.tidy.tree import ROOT


def settings(*, tracing: bool = True) -> Settings:
    return Settings(data_dir=Path("data"), tracing=tracing)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")


def test_tracing_is_off_by_default() -> None:
    assert start(settings(tracing=False)) is None


def test_tracing_starts_if_enabled() -> None:
    tracing = start(settings())
    assert isinstance(tracing, Tracing)
    tracing.close()


@pytest.mark.parametrize("module", ["opentelemetry", "opentelemetry.sdk"])
def test_missing_extra_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "broker.tracing."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError) as caught:
        start(settings())
    assert str(caught.value) == "TOPICS_TRACING needs the extra \"otel\": pip install 'topics-broker[otel]'."


def test_a_missing_module_is_not_reported_as_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("broker.tracing.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "broker.tracing.carried", None)
    with pytest.raises(ModuleNotFoundError):
        start(settings())


def test_an_unknown_exporter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none, smoke")
    with pytest.raises(SettingsError, match=r"^OTEL_TRACES_EXPORTER: .*'smoke'.*\.$"):
        start(settings())


def test_a_disabled_sdk_disables_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
    assert start(settings()) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": ""}, ["otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ["otlp_proto_http", "console"]),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ["otlp_proto_http"],
        ),
    ],
)
def test_exporters_have_the_names_of_the_specification(environment: dict[str, str], expected: list[str]) -> None:
    assert names(environment) == expected


def test_the_exporter_uses_its_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[OTLPSpanExporter] = []
    begin = OTLPSpanExporter.__init__

    def noted(self: OTLPSpanExporter) -> None:
        begin(self)
        made.append(self)

    monkeypatch.setattr(OTLPSpanExporter, "__init__", noted)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    found = provider({})
    assert found is not None
    assert [each._endpoint for each in made] == ["http://collector:4318/v1/traces"]  # pyright: ignore[reportPrivateUsage]
    found.shutdown()


def test_a_grpc_exporter_has_to_be_installed() -> None:
    with pytest.raises(NoExporter, match="'otlp_proto_grpc'"):
        provider({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_the_service_name_of_the_broker_can_be_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resource().attributes["service.name"] == "topics-broker"
    assert resource().attributes["service.version"] == VERSION
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,zone=a")
    assert (resource().attributes["service.name"], resource().attributes["zone"]) == ("mine", "a")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "other")
    assert resource().attributes["service.name"] == "other"


def test_a_broker_without_tracing_imports_no_tracing_library() -> None:
    text = "import sys, broker.__main__, broker.api.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "broker.tracing.notes" in loaded
    # The framework imports only the API.
    assert not {"broker.tracing.spans", "broker.tracing.provider", "opentelemetry.sdk"}.intersection(loaded)


class _StuckProvider:
    def shutdown(self) -> None:
        threading.Event().wait()


def test_a_stuck_exporter_does_not_delay_close() -> None:
    found = provider({"OTEL_TRACES_EXPORTER": "none"})
    assert found is not None
    tracing = Tracing(found)
    tracing._provider = _StuckProvider()  # pyright: ignore
    tracing.close(patience_s=0.05)
