"""The server as a process: protocols on one port, the order of its life, and how it ends.

Each test starts brokers, which takes a second and more: some of them are in the fast tier.
"""

from __future__ import annotations

import errno
import resource
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.broker_process import PATIENCE_S
from tests.support.live_server import LiveServer, ServerEnded, start

pytestmark = pytest.mark.slow

BODY = {"records": [{"data": 1}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(tmp_path / "data") as server:
        yield server


def http1(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=PATIENCE_S)


def http2(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, http1=False, http2=True, timeout=PATIENCE_S)


@pytest.mark.fast
@pytest.mark.parametrize(("client_of", "version"), [(http1, "HTTP/1.1"), (http2, "HTTP/2")])
def test_http_1_and_http_2_are_served_on_one_port(
    server: LiveServer, client_of: Callable[[str], httpx.Client], version: str
) -> None:
    with client_of(server.url) as client:
        answer = client.post("/v0/topics/t", json=BODY)
        assert answer.http_version == version
        assert answer.status_code == 201
        answer = client.get("/v0/topics/t/records", headers={"accept-encoding": "identity"})
        assert answer.json()["records"][0]["data"] == 1
        assert client.get("/v0/nothing").json()["error"]["code"] == "not_found"
        assert client.head("/v0/topics/t").status_code == 200
        assert client.options("/v0/topics/t").status_code == 204


@pytest.mark.parametrize("client_of", [http1, http2])
def test_bodies_of_a_megabyte_go_in_and_out(server: LiveServer, client_of: Callable[[str], httpx.Client]) -> None:
    data = "x" * 1_000_000
    with client_of(server.url) as client:
        assert client.post("/v0/topics/t", json={"records": [{"data": data}]}).status_code == 201
        assert client.get("/v0/topics/t/records/1").json()["data"] == data


@pytest.mark.parametrize("client_of", [http1, http2])
def test_a_connection_stays_open_after_a_refusal(server: LiveServer, client_of: Callable[[str], httpx.Client]) -> None:
    with client_of(server.url) as client:
        assert client.post("/v0/topics/t", content=b"x" * 200_000).status_code == 415
        assert client.post("/v0/topics/t", content=b"{", headers={"content-type": "application/json"}).is_error
        assert client.post("/v0/topics/t", json=BODY).status_code == 201


@pytest.mark.parametrize("client_of", [http1, http2])
def test_a_disconnected_waiting_reader_frees_its_slot(
    server: LiveServer, client_of: Callable[[str], httpx.Client]
) -> None:
    with client_of(server.url) as client:
        client.put("/v0/topics/t")
        with pytest.raises(httpx.ReadTimeout):
            client.get("/v0/topics/t/records?wait_ms=30000", timeout=0.3)
    with http1(server.url) as client:
        wait_for(client, "topics_parked_requests", 0)


def wait_for(client: httpx.Client, metric: str, value: int) -> None:
    """Wait until a metric has the value. The time limit of the test ends it otherwise."""
    while f"\n{metric} {value}\n" not in client.get("/v0/metrics").text:
        pass


def test_httptools_serves_only_http_1(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", http="httptools") as server, http1(server.url) as client:
        assert client.post("/v0/topics/t", json=BODY).status_code == 201


def test_an_acked_record_survives_a_clean_stop(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        httpx.post(f"{server.url}/v0/topics/t", json=BODY)
        assert server.stop() == 0
    with LiveServer(tmp_path / "data") as server:
        assert httpx.get(f"{server.url}/v0/topics/t/records").json()["records"][0]["data"] == 1


@pytest.mark.fast
def test_an_acked_record_survives_a_kill(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        httpx.post(f"{server.url}/v0/topics/t", json=BODY)
        server.kill()
    with LiveServer(tmp_path / "data") as server:
        assert httpx.get(f"{server.url}/v0/topics/t/records").json()["records"][0]["data"] == 1


def test_the_port_is_written_to_a_file(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with LiveServer(tmp_path / "data", ready=False, port_file=str(port_file)) as server:
        assert port_file.read_text() == f"{server.port}\n"


def test_the_listening_event_has_url_and_data_directory(server: LiveServer) -> None:
    [listening] = [line for line in server.events if line["event"] == "listening"]
    assert listening["url"] == f"http://127.0.0.1:{server.port}"
    assert listening["docs"] == f"{server.url}/docs"
    assert listening["data_dir"] == str(server.data_dir)


@pytest.mark.fast
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with LiveServer(tmp_path / "data") as server:
        server.signal(number)
        assert server.wait() == 0
        assert [line["event"] for line in server.events][-2:] == ["stopping", "stopped"]


def test_a_signal_answers_waiting_requests(server: LiveServer) -> None:
    answers: list[httpx.Response] = []

    def follow() -> None:
        answers.append(httpx.get(f"{server.url}/v0/topics/t/records?wait_ms=30000", timeout=30))

    with http1(server.url) as client:
        client.put("/v0/topics/t")
        waiting = threading.Thread(target=follow)
        waiting.start()
        wait_for(client, "topics_parked_requests", 1)
        assert server.stop() == 0
    waiting.join()
    assert answers[0].status_code == 200
    assert answers[0].json()["records"] == []


def test_a_draining_broker_serves_but_is_not_ready(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", drain_ms="20000") as server, http1(server.url) as client:
        server.signal()
        server.event("stopping")
        answer = client.get("/v0/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        assert client.post("/v0/topics/t", json=BODY).status_code == 201
        server.signal()
        assert server.wait() == 0


def test_many_signals_do_no_harm(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data") as server:
        httpx.post(f"{server.url}/v0/topics/t", json=BODY)
        for _ in range(5):
            server.signal(signal.SIGTERM)
            server.signal(signal.SIGINT)
        assert server.wait() == 0
    with LiveServer(tmp_path / "data") as server:
        assert httpx.get(f"{server.url}/v0/topics/t").json()["head_seq"] == 1


def test_a_request_in_flight_is_finished(server: LiveServer) -> None:
    head = (
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection, http1(server.url) as client:
        connection.sendall(head + b'{"records":')
        client.get("/v0/health")
        server.signal()
        server.event("stopping")
        connection.sendall(b'[{"data":1}]}')
        assert connection.recv(65_536).startswith(b"HTTP/1.1 201 ")
    assert server.wait() == 0


def test_a_second_broker_on_the_same_data_refuses_to_start(server: LiveServer) -> None:
    with pytest.raises(ServerEnded, match="exit code 1"), LiveServer(server.data_dir):
        pass
    assert httpx.get(f"{server.url}/v0/ready").status_code == 200


def test_a_taken_port_is_reported_in_a_sentence(server: LiveServer, tmp_path: Path) -> None:
    code, said = ended(start(tmp_path / "other", port=str(server.port)))
    assert code == 1
    assert "TOPICS_PORT" in said
    assert "Traceback" not in said


@pytest.mark.fast
def test_a_damaged_log_is_reported_with_file_and_offset(tmp_path: Path) -> None:
    settings = {"wal_shards": "1", "sync_point_bytes": "1"}
    with LiveServer(tmp_path / "data", **settings) as server:
        for _ in range(3):
            httpx.post(f"{server.url}/v0/topics/t", json={**BODY, "config": {"durable": True}})
        server.kill()
    log = min((tmp_path / "data" / "wal").glob("wal-*.log"))
    content = bytearray(log.read_bytes())
    content[40] ^= 0xFF
    log.write_bytes(content)
    with LiveServer(tmp_path / "data", ready=False, **settings) as server:
        said = server.event("cannot_start")
        assert server.wait() == 1
    assert log.name in said["reason"]
    assert "offset" in said["reason"]


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"port": "x"}, "TOPICS_PORT"),
        ({"port": "70000"}, "TOPICS_PORT"),
        ({"http": "h11"}, "TOPICS_HTTP"),
        ({"wal_shards": "-1"}, "TOPICS_WAL_SHARDS"),
        ({"host": "0.0.0.0"}, "TOPICS_HOST"),
        ({"api_keys": "k:x"}, "TOPICS_API_KEYS"),
    ],
)
def test_a_bad_setting_ends_the_broker_with_a_sentence_and_code_2(
    tmp_path: Path, settings: dict[str, str], variable: str
) -> None:
    code, said = ended(start(tmp_path / "data", **settings))
    assert code == 2
    assert variable in said
    assert said.count("\n") == 1
    assert not (tmp_path / "data").exists()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr of a process that ends by itself."""
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def test_another_interface_is_served_when_configured(tmp_path: Path) -> None:
    settings = {"host": "0.0.0.0", "allow_insecure_no_auth": "1"}
    with LiveServer(tmp_path / "data", **settings) as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/v0/ready").status_code == 200


def test_tls_is_served_with_a_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    settings = {"tls_cert": str(certificate), "tls_key": str(key)}
    with LiveServer(tmp_path / "data", **settings) as server:
        trusting = ssl.create_default_context(cafile=str(certificate))
        for http_2 in (False, True):
            with httpx.Client(verify=trusting, http2=http_2) as client:
                answer = client.get(f"https://127.0.0.1:{server.port}/v0/ready")
                assert answer.http_version == ("HTTP/2" if http_2 else "HTTP/1.1")


@pytest.mark.parametrize("path", [b"/v0/health", b"/v0/topics/t/records"])
def test_a_target_may_name_the_whole_url(server: LiveServer, path: bytes) -> None:
    httpx.post(f"{server.url}/v0/topics/t", json=BODY)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET http://localhost%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_invalid_bytes_do_not_affect_other_connections(server: LiveServer) -> None:
    for rubbish in (
        b"GET /v0/topics/\xc3\xa9 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01",
        b"rubbish\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(rubbish)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(65_536)
    assert httpx.get(f"{server.url}/v0/ready").status_code == 200
    assert not [line for line in server.events if line.get("level") == "error"]


def fail_writes(server: LiveServer) -> None:
    """From now on the kernel refuses every write of the process to a file (EFBIG)."""
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1, 1))


def test_readiness_reports_a_failed_log_and_reads_go_on(tmp_path: Path) -> None:
    with LiveServer(tmp_path / "data", wal_shards="1") as server, http1(server.url) as client:
        client.post("/v0/topics/t", json=BODY)
        fail_writes(server)
        answer = client.post("/v0/topics/t", json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed")
        assert answer.json()["error"]["detail"]["outcome"] == "unknown"
        answer = client.get("/v0/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed")
        assert answer.json()["error"]["detail"]["shards"] == [{"shard": 0, "errno": errno.EFBIG, "error": "EFBIG"}]
        assert len(client.get("/v0/topics/t/records").json()["records"]) == 1


@pytest.mark.fast
def test_a_failed_log_ends_a_broker_set_to_exit_with_code_70(tmp_path: Path) -> None:
    settings = {"wal_shards": "1", "on_storage_failed": "exit"}
    with LiveServer(tmp_path / "data", **settings) as server, http1(server.url) as client:
        client.put("/v0/topics/t")
        fail_writes(server)
        assert client.post("/v0/topics/t", json=BODY).json()["error"]["code"] == "storage_failed"
        assert server.wait() == 70
    with LiveServer(tmp_path / "data", wal_shards="1") as server:
        assert httpx.get(f"{server.url}/v0/ready").status_code == 200
