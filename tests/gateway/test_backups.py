"""A backup of all cells, as the gateway shows it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.cells_in_process import cells, client_of


async def test_a_finished_backup_has_the_figures_of_all_cells_and_the_instant_of_each(tmp_path: Path) -> None:
    async with cells(tmp_path, 2, backup_dir=tmp_path / "backups") as made, client_of(made) as client:
        names = [made.topic(cell) for cell in range(2)]
        for name in names:
            await client.post(f"/v0/topics/{name}", json={"records": [{"data": 1}, {"data": 2}]})
        assert (await client.post("/v0/admin/backup", json={"directory": "nightly"})).status_code == 200
        async with asyncio.timeout(60):
            while (found := (await client.get("/v0/admin/backup")).json())["state"] == "running":
                await asyncio.sleep(0.01)
        assert (found["state"], found["directory"]) == ("done", str(tmp_path / "backups" / "nightly"))
        assert found["heads"] == dict.fromkeys(names, 2)
        assert found["topics"] == 2
        assert [each["cell"] for each in found["cells"]] == [0, 1]
        assert found["taken_ms"] == min(each["taken_ms"] for each in found["cells"]) > 0
