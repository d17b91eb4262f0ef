"""The guard of hot paths: all its paths run, and slower paths are reported."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest import guard, guard_work


@pytest.mark.parametrize("name", guard_work.PATHS)
async def test_a_path_can_be_run(name: str) -> None:
    await guard_work.run(name, 2)


def test_every_path_has_a_figure_to_be_held_to() -> None:
    all_known = guard.read_known()
    assert guard_work.PATHS.keys() in [known.multiples.keys() for known in all_known.values()]
    for known in all_known.values():
        assert known.multiples.keys() <= guard_work.PATHS.keys()  # not every build has figures of a new path yet
        assert known.multiples["floor"] == 1


def counting(monkeypatch: pytest.MonkeyPatch, path: Path, costs: dict[str, float]) -> None:
    monkeypatch.setattr(guard, "FILE", path)
    monkeypatch.setattr(guard, "ROOT", path.parent)
    monkeypatch.setattr(guard, "instructions", costs.__getitem__)


def test_figures_of_another_build_of_python_are_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "guard.json"
    other = guard.Known(floor_instructions=100, multiples=dict.fromkeys(guard_work.PATHS, 0.5))
    path.write_bytes(msgspec.json.encode({"3.9.0, another compiler": other}))
    costs = dict.fromkeys(guard_work.PATHS, 1000.0)
    counting(monkeypatch, path, costs)
    assert guard.main([]) == 3
    shown = capsys.readouterr().out
    assert "TOO DEAR" not in shown
    assert f"no figures of Python {guard.build()}" in shown
    assert guard.main(["--update"]) == 0
    assert guard.main([]) == 0
    counting(monkeypatch, path, {**costs, "append-1": 1200.0})
    assert guard.main([]) == 1
    assert guard.read_known()["3.9.0, another compiler"] == other  # listed beside the new ones


def test_a_more_expensive_path_fails_the_guard_and_a_cheaper_path_does_not() -> None:
    known = guard.Known(floor_instructions=100, multiples={"floor": 1.0, "a": 2.0, "b": 3.0})
    found = {"floor": 200.0, "a": 439.0, "b": 300.0}  # another interpreter, for which everything costs twice as much
    shown, holds = guard.lines(found, known)
    assert holds
    assert not [line for line in shown if "TOO DEAR" in line]
    shown, holds = guard.lines({**found, "a": 441.0}, known)
    assert not holds
    assert [line.split()[0] for line in shown if "TOO DEAR" in line] == ["a"]


def test_a_new_path_is_shown_without_a_comparison() -> None:
    shown, holds = guard.lines({"floor": 1.0, "new": 5.0}, None)
    assert holds
    assert "x 5.00" in shown[1]
