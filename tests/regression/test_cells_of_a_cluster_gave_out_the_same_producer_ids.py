"""In a cluster, each cell believed to be the only one. Two cells that started in the same millisecond gave the same ids
to producers, and cell 0 looked for routers in itself alone."""

from __future__ import annotations

from pathlib import Path

from broker.cell import settings_of
from broker.cells import Role
from broker.settings import Settings
from storage import Engine
from tests.support.fake_clock import FakeClock


async def test_producer_ids_of_the_cells_of_a_cluster_differ(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "cluster_url": "s3://bucket/one"})
    ids: list[int] = []
    for cell in range(3):
        its_settings = settings_of(settings, Role(set_id="s", count=3, run=str(tmp_path), parent=0, cell=cell))
        options = its_settings.storage_options(cell)
        assert options.cells == 3
        async with Engine.open(str(its_settings.data_dir), options, clock=FakeClock()) as engine:
            ids.append((await engine.producers.claim())[0])
    assert len(set(ids)) == 3
