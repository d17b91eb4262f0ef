"""Settings from the environment: valid, refused and ignored ones."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import msgspec
import pytest

from broker.settings import (
    HttpServer,
    LogFormat,
    OnStorageFailed,
    Settings,
    SettingsError,
    described,
    is_loopback,
    load,
)
from broker.settings.storage_settings import StorageSettings
from storage import Options, Recovery
from storage.platform.directory import MAX_SHARDS


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TOPICS_"):
            monkeypatch.delenv(name)


def test_every_setting_has_its_default_in_an_empty_environment() -> None:
    settings, warnings = load()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 4000, Path("data"))
    assert settings.http is HttpServer.ZTTP
    assert settings.drain_ms == 0
    assert settings.max_body_bytes == 64 << 20
    assert settings.max_parked == 10_000
    # The only setting whose default in a broker differs from that in an engine: brokers work off queues.
    assert settings.storage_options() == msgspec.structs.replace(Options(), flag_age_ms=10_000)
    assert warnings == []


def test_every_option_of_the_engine_is_a_setting() -> None:
    # The supervisor says which cell of its set a process is, and only a cell in a bucket has the others.
    others = {"cell", "put_interval_ms", "slot_lag_ms", "sync_leases", "plain_segments", "new_epochs", "make_hot"}
    assert {*StorageSettings.model_fields, *others} == {field.name for field in msgspec.structs.fields(Options)}


def test_every_setting_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())
    assert all(f"TOPICS_{name.upper()}" in described() for name in Settings.model_fields)


def test_settings_are_read_from_prefixed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "PORT": "0",
        "DATA_DIR": "/var/lib/topics",
        "LOG_FORMAT": "json",
        "ON_STORAGE_FAILED": "exit",
        "TRUST_PAGE_CACHE": "0",
        "RECOVERY": "salvage",
        "MAX_RECORD_BYTES": "1000",
        "WAL_ENQUEUE_TIMEOUT_MS": "5",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TOPICS_{name}", value)
    settings, _ = load()
    assert settings.port == 0
    assert settings.data_dir == Path("/var/lib/topics")
    assert settings.log_format is LogFormat.JSON
    assert settings.on_storage_failed is OnStorageFailed.EXIT
    options = settings.storage_options()
    assert options.trust_page_cache is False
    assert options.recovery is Recovery.SALVAGE
    assert (options.max_record_bytes, options.wal_enqueue_timeout_ms) == (1000, 5)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_PORT", "")
    assert load()[0].port == 4000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "x"),
        ("PORT", "-1"),
        ("PORT", "65536"),
        ("PORT", "4000.5"),
        ("DRAIN_MS", "-1"),
        ("HTTP", "hypercorn"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("ON_STORAGE_FAILED", "panic"),
        ("MAX_BODY_BYTES", "0"),
        ("MAX_PARKED", "-1"),
        ("ALLOW_INSECURE_NO_AUTH", "maybe"),
        ("WAL_SHARDS", "100"),
        ("WAL_SHARDS", "-1"),
        ("DISK_SYNC_MS", "0"),
        ("RECOVERY", "hope"),
        ("MAX_TAG_BYTES", "65536"),
    ],
)
def test_an_invalid_value_is_reported_with_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"TOPICS_{name}", value)
    with pytest.raises(SettingsError, match=rf"^TOPICS_{name} is '{value}': .+\.$") as refusal:
        load()
    assert "\n" not in str(refusal.value)


def test_as_many_shards_may_be_set_as_the_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_WAL_SHARDS", "100")
    with pytest.raises(SettingsError, match=r"^TOPICS_WAL_SHARDS is '100': .+ less than or equal to 99\.$"):
        load()
    monkeypatch.setenv("TOPICS_WAL_SHARDS", "99")
    assert load()[0].storage_options().wal_shards == MAX_SHARDS == 99


def test_keys_come_from_the_variable_and_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("three:r:orders\nfour:w\n")
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2:rw,two")
    monkeypatch.setenv("TOPICS_API_KEYS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("TOPICS_HOST", "0.0.0.0")  # with keys it may be reached
    settings, _ = load()
    assert [key.number for key in settings.all_keys()] == [1, 2, 3, 4]
    assert settings.all_keys()[2].grant.prefixes == ("orders",)
    # The keys are removed: nobody who prints the settings sees them, and neither do child processes.
    assert "TOPICS_API_KEYS" not in os.environ
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json(exclude={"api_keys", "api_keys_file"})


@pytest.mark.parametrize("text", ["hunter2:reed", "one,hunter2:r:!", "hunter2 :r", "hunter2,hunter2", "hunter2,", " "])
@pytest.mark.parametrize("variable", ["API_KEYS", "API_KEYS_FILE"])
def test_malformed_keys_refuse_to_start_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, text: str
) -> None:
    (tmp_path / "keys").write_text(text)
    monkeypatch.setenv(f"TOPICS_{variable}", text if variable == "API_KEYS" else str(tmp_path / "keys"))
    monkeypatch.setenv("TOPICS_ALLOW_INSECURE_NO_AUTH", "1")
    with pytest.raises(SettingsError, match=rf"^TOPICS_{variable}: [^\n]+[^.]\.$") as refusal:
        load()
    assert "hunter2" not in "".join(traceback.format_exception(refusal.value))


def test_a_key_in_variable_and_file_refuses_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\nhunter2:r\n")
    monkeypatch.setenv("TOPICS_API_KEYS", "hunter2:rw")
    monkeypatch.setenv("TOPICS_API_KEYS_FILE", str(tmp_path / "keys"))
    with pytest.raises(SettingsError, match=r"^TOPICS_API_KEYS: entries 1 and 3 are the same key\.$"):
        load()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_key_file_refuses_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "keys").write_bytes(content)
    monkeypatch.setenv("TOPICS_API_KEYS_FILE", str(tmp_path / "keys"))
    with pytest.raises(SettingsError, match=rf"^TOPICS_API_KEYS_FILE: '{tmp_path}/keys' [^\n]+\.$"):
        load()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "no-such-host.invalid"])
def test_a_bind_beyond_this_machine_needs_to_be_allowed(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("TOPICS_HOST", host)
    with pytest.raises(SettingsError, match="TOPICS_ALLOW_INSECURE_NO_AUTH"):
        load()
    monkeypatch.setenv("TOPICS_ALLOW_INSECURE_NO_AUTH", "1")
    assert load()[0].host == host


def test_kafka_clients_are_not_let_in_from_beyond_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_KAFKA_HOST", "0.0.0.0")
    load()  # there is no such port
    monkeypatch.setenv("TOPICS_KAFKA_PORT", "9092")
    with pytest.raises(SettingsError, match=r"^TOPICS_KAFKA_HOST is .*TOPICS_ALLOW_INSECURE_NO_AUTH"):
        load()
    monkeypatch.setenv("TOPICS_API_KEYS", "one")
    assert load()[0].kafka_port == 9092


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("broker:9092", "broker", 9092), ("[2001:db8::1]:9093", "2001:db8::1", 9093), ("10.0.0.1:1", "10.0.0.1", 1)],
)
def test_kafka_advertised_is_parsed_into_host_and_port(
    monkeypatch: pytest.MonkeyPatch, text: str, host: str, port: int
) -> None:
    monkeypatch.setenv("TOPICS_KAFKA_ADVERTISED", text)
    assert load()[0].kafka_advertised == (host, port)


@pytest.mark.parametrize("text", ["broker", "broker:", ":9092", "broker:0", "broker:65536", "broker:x", "broker:٣"])
def test_no_address_for_kafka_clients(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TOPICS_KAFKA_ADVERTISED", text)
    with pytest.raises(SettingsError, match="TOPICS_KAFKA_ADVERTISED"):
        load()


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("", False), ("0.0.0.0", False)],
)
def test_loopback_is_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_port_set_by_kubernetes_is_ignored_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_PORT", "tcp://10.96.0.7:4000")
    settings, warnings = load()
    assert settings.port == 4000
    [warning] = warnings
    assert warning.startswith("TOPICS_PORT is ignored")


def test_unknown_variable_is_reported_with_the_most_similar_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_PRT", "4001")
    monkeypatch.setenv("TOPICS_KEYS_OF_MINE", "a-secret")
    _, warnings = load()
    assert warnings == [
        "TOPICS_PRT is ignored: no setting has this name; did you mean TOPICS_PORT?",
        "TOPICS_KEYS_OF_MINE is ignored: no setting has this name.",
    ]


@pytest.mark.parametrize(
    "variable",
    ["TOPICS_URL", "TOPICS_JOB_SEQ", "TOPICS_SERVICE_HOST", "TOPICS_SERVICE_PORT_HTTP", "TOPICS_PORT_4000_TCP_ADDR",
     "TOPICS_HEADLESS_SERVICE_PORT", "topics_log_level", "UNTOPICAL"],
)  # fmt: skip
def test_foreign_environment_variables_give_no_warning(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "info")
    assert load()[1] == []


def test_a_key_without_a_certificate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_TLS_KEY", "/key.pem")
    with pytest.raises(SettingsError, match="TOPICS_TLS_CERT"):
        load()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"CELLS": "3"}, "TOPICS_CELLS"),
        ({"COLD_DIR": "s3://other/cold"}, "TOPICS_COLD_DIR"),
        ({"CLUSTER_CERT": "/tls/cert.pem"}, "TOPICS_CLUSTER_CA"),
        ({"CLUSTER_HOST": "0.0.0.0"}, "TOPICS_CLUSTER_SECRET"),
        ({"SEGMENT_MAX_BYTES": str((256 << 20) + 1)}, "TOPICS_SEGMENT_MAX_BYTES"),
    ],
)
def test_settings_that_do_not_go_with_a_cluster_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], named: str
) -> None:
    for name, value in ({"CLUSTER_URL": "s3://bucket/prefix"} | given).items():
        monkeypatch.setenv(f"TOPICS_{name}", value)
    with pytest.raises(SettingsError, match=named):
        load()


def test_a_cluster_says_that_it_compresses_no_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_CLUSTER_URL", "s3://bucket/prefix")
    assert load()[1] == []
    monkeypatch.setenv("TOPICS_SEGMENT_PACK_BYTES", "65536")
    assert load()[1] == ["TOPICS_SEGMENT_PACK_BYTES is ignored: cells in a bucket compress no segments."]
