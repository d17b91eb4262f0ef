"""Sets of cells on a real disk: their backups, restores and checks, and what a set refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec import Raw

from storage import ENTRY_KIND, Durability, Engine, NewRecord, Options, ReadQuery, TopicConfig, home_cell, open_set
from storage.__main__ import main
from storage.backup.errors import BackupDamaged, BackupRefused
from storage.cells.backing_up import back_up_set, restore_set
from storage.errors import MetadataLost, OpenError
from storage.platform import PosixFileSystem, cell_folder, read_set
from storage.records.ids import cell_of

CELLS = 3
NAMES = [f"orders-{number}" for number in range(9)]
FS = PosixFileSystem()


def _cell(root: Path, cell: int, cells: int = CELLS) -> Engine:
    return Engine(cell_folder(str(root), cell), Options(cell=cell, cells=cells))


@pytest.fixture
async def made(tmp_path: Path) -> Path:
    """A set with topics in their home cells, except "guest": it is in cell 0, and its home is another cell."""
    root = tmp_path / "data"
    open_set(FS, str(root), CELLS)
    for cell in range(CELLS):
        engine = _cell(root, cell)
        await engine.start()
        own = [name for name in NAMES if home_cell(name, CELLS) == cell]
        for name in (*own, "guest") if cell == 0 else own:
            await engine.put_topic(name, TopicConfig(durability=Durability.FSYNC))
            await engine.append(name, [NewRecord(data=Raw(b'"%s"' % name.encode()))])
        if cell in (0, home_cell("guest", CELLS)):
            await engine.states.put(ENTRY_KIND, "guest", b"0")
        await engine.close()
    assert home_cell("guest", CELLS) != 0
    return root


async def _contents(root: Path, cells: int) -> dict[str, tuple[int, list[bytes]]]:
    """By topic: its cell and its records."""
    found: dict[str, tuple[int, list[bytes]]] = {}
    for cell in range(cells):
        engine = _cell(root, cell, cells)
        await engine.start()
        for name in engine.catalog.topics:
            assert cell_of(engine.catalog.topics[name].log.topic_id) == cell
            assert name not in found
            found[name] = cell, [record.data for record in (await engine.read(name, ReadQuery())).records]
        await engine.put_topic("new")
        assert cell_of(engine.state("new").epoch) == cell
        await engine.delete_topic("new")
        await engine.close()
    return found


def _expected() -> dict[str, tuple[int, list[bytes]]]:
    return {
        name: (0 if name == "guest" else home_cell(name, CELLS), [b'"%s"' % name.encode()])
        for name in (*NAMES, "guest")
    }


def _blank(name: str, folder: str) -> None:
    path = Path(folder, name)
    path.write_bytes(bytes(path.stat().st_size))


async def _backed_up(root: Path) -> str:
    found = read_set(FS, str(root))
    assert found is not None
    backup = str(root.parent / "backup")
    done = await back_up_set(FS, str(root), backup, found, Options())
    assert sum(each.topics for each in done) == len(NAMES) + 1
    return backup


async def test_a_restored_set_is_another_set_with_the_same_topics_in_the_same_cells(made: Path) -> None:
    backup = await _backed_up(made)
    await restore_set(FS, backup, str(made.parent / "again"))
    first, second = read_set(FS, str(made)), read_set(FS, str(made.parent / "again"))
    assert first is not None
    assert second is not None
    assert (second.cells, second.set_id != first.set_id) == (CELLS, True)
    assert await _contents(made.parent / "again", CELLS) == _expected()


async def test_a_set_is_restored_to_more_cells_which_know_where_the_topics_are(made: Path) -> None:
    backup = await _backed_up(made)
    more = made.parent / "more"
    await restore_set(FS, backup, str(more), cells=5)
    assert await _contents(more, 5) == _expected()
    for name, (cell, _) in _expected().items():
        for each in {cell, home_cell(name, 5)}:
            engine = _cell(more, each, 5)
            await engine.start()
            entry = engine.states.get(ENTRY_KIND, name)
            assert entry == b"%d" % cell if cell != home_cell(name, 5) else entry in (None, b"%d" % cell)
            await engine.close()
    with pytest.raises(BackupRefused, match="3 cells or more"):
        await restore_set(FS, backup, str(made.parent / "less"), cells=2)


async def test_an_entry_that_one_backup_has_is_in_both_cells_after_a_restore(made: Path) -> None:
    names = [name for number in range(99) if home_cell(name := f"new-{number}", CELLS) == 1][:2]
    for cell, name in zip((1, 2), names, strict=True):
        engine = _cell(made, cell)
        await engine.start()
        await engine.states.put(ENTRY_KIND, name, b"2?" if cell == 1 else b"2")
        await engine.close()
    await restore_set(FS, await _backed_up(made), str(made.parent / "again"))
    for cell in (1, 2):
        engine = _cell(made.parent / "again", cell)
        await engine.start()
        assert [engine.states.get(ENTRY_KIND, name) for name in names] == [b"2", b"2"]
        await engine.close()


async def test_a_backup_that_lacks_a_cell_is_not_restored(made: Path) -> None:
    backup = await _backed_up(made)
    for cell in (CELLS - 1, 1):
        shutil.rmtree(cell_folder(backup, cell))
        with pytest.raises(BackupRefused, match="all of them must be there"):
            await restore_set(FS, backup, str(made.parent / "again"))
        assert not (made.parent / "again").exists()


async def test_a_damaged_backup_leaves_an_empty_directory(made: Path) -> None:
    backup = await _backed_up(made)
    _blank(next(name for name in FS.listdir(f"{backup}/cell-02") if name.startswith("state-")), f"{backup}/cell-02")
    with pytest.raises(BackupDamaged):
        await restore_set(FS, backup, str(made.parent / "again"))
    assert [*(made.parent / "again").iterdir()] == []


def test_a_directory_of_a_restore_that_was_killed_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "RESTORING").write_text("")
    with pytest.raises(OpenError, match="empty the directory"):
        open_set(FS, str(tmp_path), CELLS)


def test_cells_without_their_file_are_not_taken_for_a_new_set(tmp_path: Path) -> None:
    (tmp_path / "cell-00").mkdir()
    with pytest.raises(MetadataLost, match="not started as a new set"):
        open_set(FS, str(tmp_path), CELLS)


async def test_verify_and_dump_look_at_every_cell(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(made)]) == 0
    assert capsys.readouterr().out.count("no problem") == CELLS
    assert main(["dump", str(made)]) == 0
    shown = capsys.readouterr().out
    assert all(f"cell {cell}:" in shown for cell in range(CELLS))
    assert all(name in shown for name in NAMES)
    (made / "cell-01" / "FORMAT").write_text("damaged")
    assert main(["verify", str(made)]) == 1
    assert "PROBLEM: FORMAT" in capsys.readouterr().out


def test_backup_and_restore_of_a_set_by_the_command_line(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup, again = str(made.parent / "backup"), str(made.parent / "again")
    assert main(["backup", str(made), backup]) == 0
    assert main(["restore", backup, again, "--cells", "4"]) == 0
    assert capsys.readouterr().out.count("was restored") == CELLS
    assert main(["verify", again]) == 0
    assert main(["restore", f"{backup}/cell-00", f"{again}-0", "--cells", "4"]) == 1
    assert "not a backup of a set" in capsys.readouterr().err
