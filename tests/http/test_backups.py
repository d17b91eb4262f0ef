"""Backups over HTTP: begun, observed, and written only where the broker allows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.settings import Settings
from schemas.backups import BackupAnswer
from storage import Engine
from storage.backup.errors import BackupFailed
from tests.http.calls import append, refused, refused_field

URL = "/v0/admin/backup"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", backup_dir=tmp_path / "backups")


async def finished(client: httpx.AsyncClient) -> dict[str, Any]:
    while True:
        answer = (await client.get(URL)).json()
        BackupAnswer.model_validate(answer)
        if answer["state"] != "running":
            return answer
        await asyncio.sleep(0)


async def test_a_new_broker_has_no_backup(client: httpx.AsyncClient) -> None:
    answer = (await client.get(URL)).json()
    answer.pop("performance")
    assert answer == {"state": "none"}


@pytest.mark.one_cell("the backup of a set is one of each cell")
async def test_a_backup_is_started_and_its_state_ends_as_done(client: httpx.AsyncClient, tmp_path: Path) -> None:
    await append(client, "t", {"data": 1}, {"data": 2})
    begun = await client.post(URL, json={"directory": "nightly", "unknown": 1})
    assert begun.status_code == 200
    assert begun.json()["state"] == "running"
    done = await finished(client)
    assert (done["state"], done["number"], done["topics"], done["heads"]) == ("done", 1, 1, {"t": 2})
    assert done["directory"] == str((tmp_path / "backups" / "nightly").resolve())
    assert (tmp_path / "backups" / "nightly" / "manifest-0000000000000001.json").exists()


async def test_a_backup_without_a_directory_is_written_to_backup_dir(client: httpx.AsyncClient, tmp_path: Path) -> None:
    await client.post(URL, json={"directory": None})
    assert (await finished(client))["directory"] == str((tmp_path / "backups").resolve())


@pytest.mark.parametrize("directory", ["/", "..", "../backups2", "a/../../b", "/etc", "nightly/../.."])
async def test_a_backup_outside_backup_dir_is_refused(client: httpx.AsyncClient, directory: str) -> None:
    refused_field(await client.post(URL, json={"directory": directory}), "directory")
    assert (await client.get(URL)).json()["state"] == "none"


@pytest.mark.parametrize(
    ("body", "field"), [({"directory": 7}, "directory"), ({"include_cold": "yes"}, "include_cold")]
)
async def test_fields_are_checked(client: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    refused_field(await client.post(URL, json=body), field)


async def test_a_second_backup_is_throttled_and_a_repeated_request_joins_the_running_backup(
    client: httpx.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def stuck(directory: str, *, include_cold: bool) -> Any:
        await go_on.wait()
        raise BackupFailed("The disk is on fire.")

    monkeypatch.setattr(engine, "backup", stuck)
    await client.post(URL, json={"directory": "a"})
    assert (await client.post(URL, json={"directory": "a"})).json()["state"] == "running"
    error = refused(await client.post(URL, json={"directory": "b"}), 429, "throttled")
    assert error["detail"] == {"limit": "backups", "max": 1}
    go_on.set()
    failed = await finished(client)
    assert failed["error"] == {"code": "storage_failed", "message": "The disk is on fire."}


@pytest.mark.one_cell("the backup of a set is one of each cell")
async def test_a_backup_into_a_foreign_directory_fails_and_names_the_foreign_file(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "letter").touch()
    await client.post(URL, json={})
    failed = await finished(client)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "invalid_request")
    assert "letter is there" in failed["error"]["message"]
