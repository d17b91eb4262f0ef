"""TOPICS_COLD_DIR is a path or a URL; other values are rejected with a helpful message without credentials."""

from __future__ import annotations

import sys

import pytest

from storage.errors import OpenError
from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.object_store import ObjectStore
from storage.segments.tiering.open import open_store
from tests.support.sim_disk import SimDisk
from tests.unit.storage.cold.servers import KEY_ID, SECRET, TOKEN, credentials


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def test_a_path_is_a_directory(disk: SimDisk) -> None:
    store = open_store("/mnt/cold/", disk)
    assert isinstance(store, DirectoryStore)
    assert store.describe() == "/mnt/cold"
    assert disk.is_dir("/mnt/cold")


@pytest.mark.parametrize(
    ("url", "described"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
        ("az://container/prefix", "az://container/prefix"),
    ],
)
def test_a_url_is_an_object_store_that_shows_no_credential(
    disk: SimDisk, url: str, described: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch, f"http://{KEY_ID}:hidden@127.0.0.1:1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    store = open_store(url, disk)
    assert isinstance(store, ObjectStore)
    assert store.describe() == described
    for secret in (KEY_ID, SECRET, TOKEN, "c2VjcmV0", "hidden"):
        assert secret not in store.describe() + repr(store)


@pytest.mark.parametrize("location", ["ftp://host/x", "http://u:hidden@host/x", "S4://bucket", "file:///x"])
def test_an_unknown_scheme_is_refused_with_the_name_of_the_setting(disk: SimDisk, location: str) -> None:
    with pytest.raises(ValueError, match=r"TOPICS_COLD_DIR.*is not known") as caught:
        open_store(location, disk)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "location",
    [
        "",
        "s3://",
        "s3:///prefix",
        "s3://id:hidden@bucket/prefix",
        "s3://bucket/prefix?key=hidden",
        "s3://bucket/prefix#hidden",
        "s3://[hidden/prefix",
        "s3://bucket/a/../b",
    ],
)
def test_an_invalid_location_is_refused_with_the_name_of_the_setting(disk: SimDisk, location: str) -> None:
    with pytest.raises(ValueError, match="TOPICS_COLD_DIR") as caught:
        open_store(location, disk)
    assert "hidden" not in str(caught.value)
    assert disk.calls == []


def test_a_missing_variable_of_the_store_fails_the_opening(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(OpenError, match="AZURE_"):
        open_store("az://container", disk)


def test_a_url_without_the_cold_extra_is_refused_with_the_pip_command(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("obstore", "obstore.exceptions", "obstore.store"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(OpenError, match=r"pip install 'topics-broker\[cold\]'"):
        open_store("s3://bucket", disk)
    assert isinstance(open_store("/mnt/cold", disk), DirectoryStore)
