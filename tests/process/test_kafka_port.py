"""The Kafka port of a real broker process: opening, closing, TLS, and errors at the start."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.kafka import start
from broker.settings import Settings, SettingsError
from tests.support.broker_process import BrokerProcess
from tests.support.certificate import certificate

PATIENCE_S = 120


def admin(port: int, **settings: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0, **settings})


def port_of(broker: BrokerProcess, file: Path) -> int:
    broker.until(file.exists)
    return int(file.read_text())


def test_topics_of_kafka_clients_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "kafka-port"
    settings = {"kafka_port": 0, "kafka_port_file": file}
    with BrokerProcess(tmp_path, **settings) as broker:
        broker.start()
        port = port_of(broker, file)
        client = admin(port)
        futures = client.create_topics([NewTopic("t", 3, 1, config={"retention.ms": "5000"})])
        futures["t"].result(PATIENCE_S)
        assert broker.ok("GET", "/v0/topics/t")["config"]["ttl_ms"] == 5000
        assert broker.metric("topics_kafka_connections") >= 1
        assert broker.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        file.unlink()
        broker.start()
        topics = admin(port_of(broker, file)).list_topics(timeout=PATIENCE_S).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 3}
        assert broker.stop() == 0
        assert broker.complaints() == []


def test_keys_work_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    file = tmp_path / "kafka-port"
    with BrokerProcess(
        tmp_path, kafka_port=0, kafka_port_file=file, tls_cert=cert, tls_key=key, api_keys="one:r,two"
    ) as broker:
        broker.launch()
        secured = {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "two",
            "ssl.ca.location": str(cert),
        }  # fmt: skip
        client = admin(port_of(broker, file), **secured)
        client.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
        assert list(client.list_topics(timeout=PATIENCE_S).topics) == ["t"]


def test_unwritable_port_file_stops_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, kafka_port=0, kafka_port_file=tmp_path / "none" / "port") as broker:
        broker.launch()
        assert broker.wait() == 1
        assert "cannot_start" in broker.log()


def test_missing_extra_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "broker.kafka.port", raising=False)

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "broker.kafka.port":
                raise ModuleNotFoundError(name="aiokafka")

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    settings = Settings.model_validate({"data_dir": tmp_path, "kafka_port": 0})
    with pytest.raises(SettingsError, match=r"TOPICS_KAFKA_PORT needs the extra \"kafka\": pip install"):
        start.bind_port(settings)
    assert start.bind_port(Settings.model_validate({"data_dir": tmp_path})) is None
