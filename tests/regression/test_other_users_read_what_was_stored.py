"""Data directories had the mode 0750 and files 0640, so other users of the group could read records without a key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import structlog

from storage import Engine
from tests.http.conftest import SMALL


async def test_data_files_and_directories_are_private_to_their_user(tmp_path: Path) -> None:
    root = tmp_path / "data"
    async with Engine.open(root, SMALL) as engine:
        await engine.put_topic("t")
    found = [root, *root.rglob("*")]
    assert {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_dir()} == {0o700}
    assert {stat.S_IMODE(each.stat().st_mode) for each in found if each.is_file()} == {0o600}


@pytest.mark.parametrize(("mode", "told"), [(0o700, []), (0o755, ["data_dir_open_to_others"])])
async def test_a_start_warns_of_a_data_directory_readable_by_other_users(
    tmp_path: Path, mode: int, told: list[str]
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(mode)
    with structlog.testing.capture_logs() as logs:
        async with Engine.open(root, SMALL):
            pass
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == told
    assert stat.S_IMODE(root.stat().st_mode) == mode
