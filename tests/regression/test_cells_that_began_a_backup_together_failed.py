"""Two cells created the parents of their backups at the same time, and the slower one failed: EEXIST."""

from __future__ import annotations

import pytest

from storage.platform import ensure_dir
from tests.support.sim_disk import SimDisk


class _Raced(SimDisk):
    """Another process creates each directory just before this one does."""

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        super().mkdir(path)


class _Occupied(SimDisk):
    """Another process creates a file of that name."""

    def mkdir(self, path: str) -> None:
        raise FileExistsError(path)


def test_a_directory_that_another_process_creates_meanwhile_is_taken() -> None:
    disk = _Raced()
    ensure_dir(disk, "/backups/nightly/cell-00")
    assert disk.is_dir("/backups/nightly/cell-00")


def test_a_file_in_its_place_is_an_error() -> None:
    with pytest.raises(FileExistsError):
        ensure_dir(_Occupied(), "/backups")
