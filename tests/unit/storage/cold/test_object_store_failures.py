"""An object store that fails, refuses, stalls or is missing: errors come in bounded time and contain no credential."""

from __future__ import annotations

import errno
import re
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import httpx
import pytest

from storage.segments.tiering.object_store import PART_BYTES, ObjectStore
from storage.segments.tiering.open import open_store
from storage.segments.tiering.store import ColdMissing, ColdStore, ColdUnavailable
from tests.support.sim_disk import SimDisk
from tests.support.sim_handles import SimFile
from tests.unit.storage.cold import servers
from tests.unit.storage.cold.conftest import Rig
from tests.unit.storage.cold.servers import BUCKET, KEY_ID, SECRET, TOKEN, answering, credentials, silent_server

KEY = "c/topics/00000000000000aa/seg-1.data"
LOCAL = "/data/seg-1.data"
TIMEOUT_S = 0.6
#: A machine that is busy with other tests may be this much late.
LATE_S = 10.0

REQUESTS: dict[str, Callable[[ColdStore], object]] = {
    "put": lambda store: store.put(KEY, LOCAL),
    "put_bytes": lambda store: store.put_bytes(KEY, b"1"),
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 10),
    "size": lambda store: store.size(KEY),
    "delete": lambda store: store.delete(KEY),
    "list": lambda store: store.list("c"),
}
every_request = pytest.mark.parametrize("request_name", REQUESTS)


def disk() -> SimDisk:
    found = SimDisk()
    found.write_file(LOCAL, b"1234")
    return found


def refused(store: ColdStore, request_name: str) -> ColdUnavailable:
    started = time.monotonic()
    with pytest.raises(ColdUnavailable) as caught:
        REQUESTS[request_name](store)
    assert time.monotonic() - started < TIMEOUT_S + LATE_S
    assert caught.value.key in (KEY, "c")
    assert_discreet(caught.value)
    return caught.value


def assert_discreet(error: BaseException) -> None:
    """No credential is in the error, nor in a log of the error and its causes."""
    assert error.__cause__ is None
    assert error.__context__ is None
    text = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    for secret in (SECRET, KEY_ID, TOKEN):
        assert secret not in text


@every_request
def test_a_silent_store_is_unavailable_after_the_timeout(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as endpoint:
        credentials(monkeypatch, endpoint)
        store = open_store(f"s3://{BUCKET}/p", disk(), timeout_s=TIMEOUT_S)
        assert "no answer in time" in refused(store, request_name).reason


@every_request
def test_a_store_that_keeps_failing_is_unavailable(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(servers.BrokenServer) as endpoint:
        credentials(monkeypatch, endpoint)
        refused(open_store(f"s3://{BUCKET}/p", disk(), timeout_s=TIMEOUT_S), request_name)


@every_request
def test_an_absent_store_is_unavailable(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_server() as endpoint:
        pass
    credentials(monkeypatch, endpoint)
    refused(open_store(f"s3://{BUCKET}/p", disk(), timeout_s=TIMEOUT_S), request_name)


@pytest.mark.parametrize("request_name", ["get", "get_range"])
def test_a_stalled_download_is_unavailable_after_the_timeout(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(servers.StallingServer) as endpoint:
        credentials(monkeypatch, endpoint)
        refused(open_store(f"s3://{BUCKET}/p", disk(), timeout_s=TIMEOUT_S), request_name)


@every_request
def test_a_refusal_says_why_and_repeats_no_credential(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(servers.EchoingServer) as endpoint:
        credentials(monkeypatch, endpoint)
        error = refused(open_store(f"s3://{BUCKET}/p", disk(), timeout_s=20), request_name)
    assert "HTTP 403" in error.reason
    if request_name != "size":  # the answer to a HEAD has no text
        assert "AccessDenied" in error.reason


def test_a_server_error_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotImplementedServer(servers.QuietServer):
        def answer(self) -> None:
            self.send(501, b"<Error><Code>NotImplemented</Code></Error>")

    assert_reason(NotImplementedServer, "HTTP 501, NotImplemented", monkeypatch)


def test_a_request_is_repeated_until_the_store_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = iter((503, 500))

    class RecoveringServer(servers.QuietServer):
        def answer(self) -> None:
            self.send(next(refusals, 200), b"")

    with answering(RecoveringServer) as endpoint:
        credentials(monkeypatch, endpoint)
        open_store(f"s3://{BUCKET}/p", disk(), timeout_s=40).put_bytes(KEY, b"")
    assert next(refusals, None) is None


def assert_reason(handler: type[BaseHTTPRequestHandler], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(handler) as endpoint:
        credentials(monkeypatch, endpoint)
        assert words in refused(open_store(f"s3://{BUCKET}/p", disk(), timeout_s=40), "get").reason


def test_the_error_of_a_missing_object_has_no_credential(s3: Rig) -> None:
    with pytest.raises(ColdMissing) as caught:
        s3.store.get(KEY)
    assert_discreet(caught.value)


@every_request
def test_a_missing_bucket_is_not_a_missing_object(
    request_name: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch, s3_endpoint)
    error = refused(open_store("s3://no-such-bucket/p", disk(), timeout_s=20), request_name)
    assert "NoSuchBucket" in error.reason


def test_a_missing_container_is_not_a_missing_object(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(servers.NoContainerServer) as endpoint:
        servers.azure_credentials(monkeypatch, endpoint)
        error = refused(open_store("az://container/p", disk(), timeout_s=20), "get")
    assert "ContainerNotFound" in error.reason


def test_an_upload_is_not_completed_when_the_local_file_cannot_be_read(s3: Rig) -> None:
    assert isinstance(s3.fs, SimDisk)
    path = s3.local(bytes(PART_BYTES * 2 + 5))
    s3.fs.fail("pread", path, errno=errno.EIO, nth=3)
    with pytest.raises(ColdUnavailable, match="local file cannot be read: Input/output error"):
        s3.store.put(KEY, path)
    with pytest.raises(ColdMissing):
        s3.store.get(KEY)


@pytest.mark.parametrize("size", [5000, PART_BYTES + 5000])
def test_a_local_file_truncated_during_an_upload_is_not_stored_in_part(
    s3: Rig, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(s3.fs, SimDisk)
    path = s3.local(bytes(size))
    gate = s3.fs.open(path, write=False)
    monkeypatch.setattr(type(gate), "size", lambda _: size + 1)
    with pytest.raises(ColdUnavailable, match=f"it ends at {size}, not at {size + 1}"):
        s3.store.put(KEY, path)
    with pytest.raises(ColdMissing):
        s3.store.get(KEY)


def parts_left(endpoint: str) -> list[str]:
    """Uploads that were begun and neither completed nor aborted."""
    return re.findall("<UploadId>(.+?)</UploadId>", httpx.get(f"{endpoint}/{BUCKET}?uploads").text)


def test_an_upload_with_a_read_error_leaves_no_parts(s3: Rig, s3_endpoint: str) -> None:
    assert isinstance(s3.fs, SimDisk)
    path = s3.local(bytes(PART_BYTES * 3))
    s3.fs.fail("pread", path, errno=errno.EIO, nth=3)
    with pytest.raises(ColdUnavailable):
        s3.store.put(KEY, path)
    assert parts_left(s3_endpoint) == []


def test_an_upload_over_its_timeout_is_aborted_and_leaves_no_parts(
    s3: Rig, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(s3.store, ObjectStore)
    path = s3.local(bytes(PART_BYTES * 3))
    file = s3.fs.open(path, write=False)
    read = type(file).pread

    def slow(self: SimFile, size: int, offset: int) -> bytes:
        while offset and not parts_left(s3_endpoint):
            time.sleep(0.01)
        time.sleep(2 * TIMEOUT_S if offset else 0)
        return read(self, size, offset)

    monkeypatch.setattr(type(file), "pread", slow)
    monkeypatch.setattr(s3.store, "_allowed_s", lambda _: TIMEOUT_S)
    with pytest.raises(ColdUnavailable, match="no answer in time"):
        s3.store.put(KEY, path)
    assert parts_left(s3_endpoint) == []
    with pytest.raises(ColdMissing):
        s3.store.get(KEY)


class RefusingParts(servers.QuietServer):
    """Begins uploads and refuses their parts."""

    taken_back: ClassVar[list[str]] = []

    def answer(self) -> None:
        if self.command == "DELETE":
            self.taken_back.append(self.path)
            self.send(204, b"")
        elif "?uploads" in self.path:
            self.send(200, b"<InitiateMultipartUploadResult><UploadId>u-1</UploadId></InitiateMultipartUploadResult>")
        else:
            self.send(403, b"<Error><Code>AccessDenied</Code></Error>")


def test_an_upload_with_refused_parts_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimDisk()
    found.write_file(LOCAL, bytes(PART_BYTES + 1))
    with answering(RefusingParts) as endpoint:
        credentials(monkeypatch, endpoint)
        store = open_store(f"s3://{BUCKET}/p", found, timeout_s=20)
        with pytest.raises(ColdUnavailable, match="AccessDenied"):
            store.put(KEY, LOCAL)
    assert [path for path in RefusingParts.taken_back if "uploadId=u-1" in path]
