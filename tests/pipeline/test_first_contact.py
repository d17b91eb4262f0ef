"""The first contact with a broker: what is a mistake is an error soon, and work that runs is patient."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from pipeline import first_contact
from pipeline.errors import BadOption, PipelineError, SourceUnreadable
from pipeline.first_contact import reach
from pipeline.options import parse
from pipeline.source.batch import BatchReader
from pipeline.source.stream import StreamReader
from pipeline.source.writer import BatchWriter
from tests.pipeline.exports import command
from tests.support.broker_process import PATIENCE_S, PYTHON_PATH, ROOT
from tests.support.certificate import certificate
from tests.support.ports import free_port
from tests.support.small_segments import SmallSegments
from topics_client import Client

#: Nothing listens at this port.
NOWHERE = "http://127.0.0.1:1"
COLUMNS = StructType().add("topic", "string").add("value", "string")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first contact that is tried once."""
    monkeypatch.setattr(first_contact, "PATIENCE_S", 0.0)
    monkeypatch.setattr(first_contact, "_FIRST_TRY_S", 0.1)


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Generator[int]:
    """A port that closes each connection at once, with `tls` after its handshake."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    if tls is None:
                        connection.recv(1 << 16)
                    else:
                        tls.wrap_socket(connection, server_side=True).close()
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def refused(url: str, kind: type[PipelineError]) -> str:
    """What the first contact says."""
    with Client(url) as client, pytest.raises(kind) as raised:
        reach(client, "url")
    return str(raised.value)


def test_a_broker_that_is_slow_is_reached(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "LIMIT_S", 0.3)
    monkeypatch.setattr(first_contact, "_PROBE_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Client(f"http://127.0.0.1:{server.getsockname()[1]}") as slow,
    ):
        reach(slow, "url")


def test_every_reader_and_writer_names_the_option_soon(impatient: None) -> None:
    given = {"url": NOWHERE, "subscribe": "t"}
    said = f"No broker can be reached at {NOWHERE} .*Check url, the broker's HTTP address"
    with pytest.raises(SourceUnreadable, match=said):
        BatchReader(parse(given)).partitions()
    with pytest.raises(SourceUnreadable, match=said):
        StreamReader(parse(given)).initialOffset()
    for more in ({}, {"topic": "t"}):
        with pytest.raises(SourceUnreadable, match=said):
            BatchWriter({"url": NOWHERE, **more}, COLUMNS, overwrite=False)


def test_a_command_names_its_option_soon(impatient: None, tmp_path: Path) -> None:
    said = command("status", "--url", NOWHERE, "--topics", "t", "--to", str(tmp_path), status=1)
    assert f"No broker can be reached at {NOWHERE} (Connection refused). Check --url" in said


@pytest.mark.slow
def test_an_export_says_that_it_waits_for_a_broker_and_waits(impatient: None, tmp_path: Path) -> None:
    with SmallSegments(tmp_path / "b", port=free_port()) as broker:
        broker.append("t", 3)
        url = broker.url
        broker.kill()
        given = ("--url", url, "--topics", "t", "--to", str(tmp_path / "out"), "--engine", "arrow")
        program = [sys.executable, "-m", "pipeline", "export", *given]
        environment = os.environ | {"PYTHONPATH": PYTHON_PATH}
        with subprocess.Popen(program, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as export:
            assert export.stderr is not None
            said = export.stderr.readline()
            broker.start_again()
            assert export.wait(PATIENCE_S) == 0
    assert f"No broker can be reached at {url}" in said
    assert said.endswith("Waiting for it for another minute.\n")


def test_a_stream_that_runs_waits_for_a_broker_that_restarts(impatient: None, tmp_path: Path) -> None:
    with SmallSegments(tmp_path / "b", port=free_port()) as broker:
        broker.append("t", 3)
        reader = StreamReader(parse({"url": broker.url, "subscribe": "t", "startingOffsets": "earliest"}))
        start = reader.initialOffset()
        broker.kill()
        with ThreadPoolExecutor(1) as pool:
            ends = pool.submit(reader.latestOffset, start, reader.getDefaultReadLimit())
            broker.start_again()
            assert ends.result()["t"]["0"]["seq"] == 4


def test_a_broker_that_refuses_is_reached(broker: SmallSegments) -> None:
    with Client(broker.url, token="not-a-key") as client:
        reach(client, "url")


def test_a_path_that_the_broker_does_not_have_is_refused(broker: SmallSegments) -> None:
    said = refused(f"{broker.url}/x", BadOption)
    assert said == f"url is '{broker.url}/x', and the broker there has no path /x: write url={broker.url}."
    with Client(f"{broker.url}/v0/") as client:
        reach(client, "url")


def test_https_to_a_port_without_tls_is_refused(broker: SmallSegments, monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker waits for the rest of what it takes for a request.
    monkeypatch.setattr(first_contact, "_FIRST_TRY_S", 0.1)
    said = refused(broker.url.replace("http", "https"), BadOption)
    assert f"what listens there speaks HTTP without TLS: write url={broker.url}." in said


def test_http_to_a_port_with_tls_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with listening(context) as port:
        said = refused(f"http://127.0.0.1:{port}", BadOption)
    assert f"what listens there speaks HTTP with TLS: write url=https://127.0.0.1:{port}." in said


def test_a_port_of_another_protocol_is_named_as_perhaps_kafkas(impatient: None) -> None:
    with listening() as port:
        assert "If it is the Kafka port" in refused(f"http://127.0.0.1:{port}", SourceUnreadable)
