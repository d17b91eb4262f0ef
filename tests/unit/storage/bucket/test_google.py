"""Google Cloud Storage: what obstore sends for a create, and what each answer comes to. The server of these tests gives
the answers that a test names. So they show nothing of what Google's own service does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from storage.bucket.driver import Bucket, Driver, open_bucket
from storage.bucket.location import Location, open_location
from storage.bucket.requests import Unanswered
from storage.bucket.slot import Seal, encode_data
from storage.bucket.slots import Fenced, create_slot
from storage.errors import OpenError
from storage.platform.clock import SystemClock
from tests.unit.storage.cold.servers import TOKEN, EchoingServer, QuietServer, answering, google_credentials

CELL = "cell-00"
OWN, OF_ANOTHER = (
    encode_data(1, Seal(0, 1, nonce * 16, "node", "http://10.0.0.1:8080", "dir"), 1, 0, b"frames")
    for nonce in ("aa", "bb")
)
CREATED = (200, b"")
EXISTS = (412, b"<Error><Code>PreconditionFailed</Code></Error>")
CONFLICT = (409, b"<Error><Code>Conflict</Code></Error>")
BUSY = (429, b"<Error><Code>SlowDown</Code></Error>")
AWAY = (503, b"<Error><Code>ServiceUnavailable</Code></Error>")
NO_OBJECT = (404, b"<Error><Code>NoSuchKey</Code></Error>")
NO_BUCKET = (404, b"<Error><Code>NoSuchBucket</Code></Error>")


class Server:
    """Gives its answers in order, the last one from then on, and notes the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = [CREATED]
        #: Method, path, and the condition.
        self.asked: list[tuple[str, str, str | None]] = []

    def next(self) -> tuple[int, bytes]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Named by the environment."""
    server = Server()

    class Answers(QuietServer):
        def answer(self) -> None:
            server.asked.append((self.command, self.path, self.headers["x-goog-if-generation-match"]))
            self.send(*server.next())

    with answering(Answers) as endpoint:
        google_credentials(monkeypatch, endpoint)
        yield server


@pytest.fixture
def bucket(server: Server) -> Bucket:
    return open_bucket("gs", "bucket", "clusters/one", timeout_s=20)


@pytest.fixture
def driver(bucket: Bucket) -> Iterator[Driver]:
    made = Driver(bucket, SystemClock())
    yield made
    made.close()


def test_a_create_asks_for_an_object_without_a_generation(server: Server, bucket: Bucket) -> None:
    assert bucket.create("plan/1", b"x")
    bucket.put("nodes/1", b"x")  # a sign of life replaces another one
    assert server.asked == [
        ("PUT", "/bucket/clusters%2Fone%2Fplan%2F1", "0"),
        ("PUT", "/bucket/clusters%2Fone%2Fnodes%2F1", None),
    ]


@pytest.mark.parametrize("answer", [EXISTS, CONFLICT])
def test_a_failed_condition_says_that_the_object_exists(
    answer: tuple[int, bytes], server: Server, bucket: Bucket
) -> None:
    server.answers = [answer]
    assert not bucket.create("a", b"x")
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [304, 400, 401, 403, 404, 408, 429, 500, 502, 503, 504])
def test_another_status_leaves_open_whether_it_was_created(status: int, server: Server, bucket: Bucket) -> None:
    server.answers = [(status, b"")]
    with pytest.raises(Unanswered, match=f"status {status}"):
        bucket.create("a", b"x")
    assert len(server.asked) == 1  # the protocol alone repeats a request


@pytest.mark.parametrize(
    "answers",
    [
        [EXISTS, (200, OWN)],  # an earlier attempt whose answer was lost
        [BUSY, AWAY, CREATED],
        [AWAY, EXISTS, (200, OWN)],
        [EXISTS, AWAY, EXISTS, (200, OWN)],
        [CONFLICT, NO_OBJECT, CREATED],
    ],
)
def test_a_slot_is_created_by_as_many_attempts_as_it_takes(
    answers: list[tuple[int, bytes]], server: Server, driver: Driver
) -> None:
    server.answers = [*answers, (500, b"")]
    driver.run(create_slot(CELL, 1, OWN, give_up_s=60))
    assert len(server.asked) == len(answers)


@pytest.mark.parametrize("answer", [EXISTS, CONFLICT])
def test_the_bytes_of_the_object_say_that_another_process_owns_the_cell(
    answer: tuple[int, bytes], server: Server, driver: Driver
) -> None:
    server.answers = [BUSY, answer, (200, OF_ANOTHER)]
    with pytest.raises(Fenced):
        driver.run(create_slot(CELL, 1, OWN, give_up_s=60))


def test_a_missing_bucket_is_not_a_missing_object(server: Server, bucket: Bucket) -> None:
    server.answers = [NO_BUCKET]
    for call in (lambda: bucket.get("a"), lambda: bucket.create("a", b"x"), lambda: list(bucket.names("a/"))):
        with pytest.raises(Unanswered, match="there is no bucket of that name"):
            call()
    server.answers = [NO_OBJECT]
    assert bucket.get("a") is None


def account(key: str) -> str:
    """The file of a service account."""
    return json.dumps({"type": "service_account", "client_email": "me@x", "private_key_id": "k", "private_key": key})


@pytest.mark.parametrize("by_file", [True, False])
def test_a_refusal_shows_neither_the_key_nor_what_was_signed_with_it(
    by_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    )
    with answering(EchoingServer) as endpoint:
        google_credentials(monkeypatch, endpoint)
        monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
        if by_file:
            file = tmp_path / "account.json"
            file.write_text(account(key))
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        else:
            monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", account(key))
        bucket = open_bucket("gs", "bucket", None, timeout_s=20)
        for call in (lambda: bucket.create("a", b"x"), lambda: bucket.get("a"), lambda: list(bucket.names("a/"))):
            with pytest.raises(Unanswered) as caught:
                call()
            # The whole text: the server has repeated the header with the signed token.
            assert str(caught.value) == f"{endpoint[7:]}: status 403, the credentials are refused"
            assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GOOGLE_APPLICATION_CREDENTIALS", "/s3cret/absent.json"),
        ("GOOGLE_SERVICE_ACCOUNT", "/s3cret/absent.json"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "{s3cret"),
        ("GOOGLE_SERVICE_ACCOUNT_KEY", account("s3cret")),
    ],
)
def test_wrong_credentials_are_refused_with_the_names_of_the_variables(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    google_credentials(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    monkeypatch.setenv(name, value)
    with pytest.raises(OpenError, match=r"gs://bucket .*GOOGLE_\*") as caught:
        open_location(Location("gs", "bucket", ""))
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_refused_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(EchoingServer) as endpoint:
        google_credentials(monkeypatch, endpoint)
        with pytest.raises(Unanswered) as caught:
            open_bucket("gs", "bucket", None, timeout_s=20).create("a", b"x")
    assert TOKEN not in repr(caught.value)
