"""What is said of a store that does not answer: the host and the cause, and nothing that a store has written."""

from __future__ import annotations

import socket

import pytest

from storage.bucket import Location, Unanswered, open_location
from storage.bucket.reasons import reason
from tests.unit.storage.cold.servers import BUCKET, credentials


def refused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def told(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    credentials(monkeypatch, endpoint)
    with pytest.raises(Unanswered) as caught:
        open_location(Location("s3", BUCKET, "one"), 1.0).get("a")
    return str(caught.value)


def test_a_refused_connection_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    port = refused_port()
    assert told(f"http://127.0.0.1:{port}", monkeypatch) == f"127.0.0.1:{port}: the connection was refused"


def test_a_name_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("http://store.invalid:9000", monkeypatch) == "store.invalid:9000: there is no host of that name"


def test_silence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        assert told(f"http://127.0.0.1:{port}", monkeypatch) == f"127.0.0.1:{port}: no answer in time"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uri: Some(\n http://h:1/b/a,\n), status: 403,\n body: k3y", "h:1: status 403, the credentials are refused"),
        ("uri: Some(\n http://h:1/b/a,\n), status: 500,\n body: k3y", "h:1: status 500"),
        ("uri: Some(http://k3y:k3y@h:1/b/a), inner: BareRedirect", "the bucket is in another region (AWS_REGION)"),
        ("404: <Code>NoSuchBucket</Code> k3y", "there is no bucket of that name"),
        ("404: <Code>ContainerNotFound</Code> k3y", "there is no bucket of that name"),
        ("uri: Some(http://h:1/b/NoSuchBucket/a), status: 404", "h:1: status 404"),
        (
            "uri: Some(http://169.254.169.254/computeMetadata/v1/token), status: 403, body: k3y",
            "169.254.169.254: the environment has no credentials (AWS_*, GOOGLE_*, AZURE_*), and the machine gives "
            "none: status 403",
        ),
        ("k3y", "Exception"),
    ],
)
def test_other_text_of_the_store_is_not_repeated(text: str, words: str) -> None:
    assert reason(Exception(text)) == words
