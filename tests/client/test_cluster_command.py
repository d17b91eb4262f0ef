"""`topics cluster` shows the cells of a set, and gives orders to a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner

from tests.client.fake_broker import FakeBroker, Trouble, answer, error
from topics_client.cli import app
from topics_client.commands.terminal import ExitCode


def _cluster(*states: str) -> dict[str, Any]:
    cells = [
        {"cell": number, "state": state, "restarts": number * 1000, "http": f"http://127.0.0.1:{4100 + number}"}
        for number, state in enumerate(states)
    ]
    return {"set_id": "s1", "home_cells": len(states), "cells": cells, "gateways": [{"gateway": 0, "restarts": 2}]}


def _answers(body: dict[str, Any]) -> Trouble:
    return lambda request, proceed: answer(body)


def test_the_cells_are_shown_as_a_table(fake: FakeBroker, fake_url: str) -> None:
    fake.troubles.append(_answers(_cluster("ready", "ready")))
    result = CliRunner().invoke(app, ["cluster", "status", "--url", fake_url])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"{fake_url}  set s1",
        "CELL  STATE  RESTARTS  HTTP                   KAFKA",
        "   0  ready         0  http://127.0.0.1:4100  -",
        "   1  ready     1,000  http://127.0.0.1:4101  -",
        "1 gateway, restarts: 2",
    ]


def test_the_nodes_of_a_cluster_are_shown_with_what_they_own(fake: FakeBroker, fake_url: str) -> None:
    found = _cluster("ready", "ready")
    found["cells"][0] |= {"node": "one", "generation": 1200}
    nodes: list[dict[str, Any]] = [
        {"node": "one", "state": "alive", "age_ms": 340, "cells": [0], "http": "10.0.0.1:4000", "version": "1.2.3"},
        {"node": "two", "state": "silent", "age_ms": 61_000, "cells": []},
    ]
    fake.troubles += [_answers({**found, "node": "one", "nodes": nodes})] * 2
    result = CliRunner().invoke(app, ["cluster", "status", "--url", fake_url])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"{fake_url}  set s1",
        "CELL  STATE  RESTARTS  NODE  GENERATION  HTTP                   KAFKA",
        "   0  ready         0  one        1,200  http://127.0.0.1:4100  -",
        "   1  ready     1,000  -              -  http://127.0.0.1:4101  -",
        "1 gateway, restarts: 2",
        "NODE  STATE         SEEN  CELLS  HTTP           VERSION",
        "one   alive    0.3 s ago  0      10.0.0.1:4000  1.2.3",
        "two   silent  61.0 s ago  -      -              -",
    ]
    result = CliRunner().invoke(app, ["cluster", "status", "--json", "--url", fake_url])
    assert json.loads(result.stdout) == {**found, "node": "one", "nodes": nodes}


def test_a_cell_that_is_away_is_exit_status_3(fake: FakeBroker, fake_url: str) -> None:
    fake.troubles.append(_answers(_cluster("ready", "down")))
    result = CliRunner().invoke(app, ["cluster", "status", "--url", fake_url])
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "   1  down " in result.stdout


def test_a_cell_that_is_taken_over_says_by_whom_and_how_far(fake: FakeBroker, fake_url: str) -> None:
    found = _cluster("down", "starting", "ready")
    for cell, state in enumerate(("waiting", "recovering", "waiting")):
        found["cells"][cell]["takeover"] = {"node": "b", "state": state, "since_ms": 1_700_000_000_000, "progress": 0.5}
    fake.troubles += [_answers(found)] * 2
    result = CliRunner().invoke(app, ["cluster", "status", "--url", fake_url])
    assert [line[6:33].strip() for line in result.stdout.splitlines()[2:5]] == [
        "down (b: waiting)", "starting (b: recovering 50%)"[:27], "ready",
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["cluster", "status", "--json", "--url", fake_url])
    assert json.loads(result.stdout) == found


def test_json_output_is_the_answer_of_the_gateway(fake: FakeBroker, fake_url: str) -> None:
    fake.troubles.append(_answers(_cluster("ready", "starting")))
    result = CliRunner().invoke(app, ["cluster", "status", "--json", "--url", fake_url])
    assert result.exit_code == ExitCode.UNREACHABLE
    assert json.loads(result.stdout) == _cluster("ready", "starting")


def test_a_broker_without_cells_is_reported(fake: FakeBroker, fake_url: str) -> None:
    result = CliRunner().invoke(app, ["cluster", "status", "--url", fake_url])
    assert result.exit_code == ExitCode.REFUSED
    assert result.stderr == f"Error: The broker at {fake_url} is not a set of cells.\n"


def _at(*nodes: str | None, wanted: dict[int, str] | None = None, drained: tuple[str, ...] = ()) -> dict[str, Any]:
    """A cluster of nodes a and b with the cells at these nodes."""
    found = _cluster(*("down" if node is None else "ready" for node in nodes))
    for cell, node in zip(found["cells"], nodes, strict=True):
        if node is not None:
            cell |= {"node": node, "generation": 2}
        if cell["cell"] in (wanted or {}):
            cell["wanted"] = (wanted or {})[cell["cell"]]
    shown: list[dict[str, Any]] = [{"node": name, "state": "alive", "age_ms": 0, "cells": []} for name in "ab"]
    for node in shown:
        if node["node"] in drained:
            node |= {"state": "drained", "drain": True}
    return {**found, "node": "a", "nodes": shown, "plan": 7}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics_client.commands.cluster._LOOK_EVERY_S", 0.001)


Run = Callable[..., Any]


@pytest.fixture
def run(fake: FakeBroker, fake_url: str) -> Run:
    def run(*arguments: str, answers: list[Any]) -> Any:
        fake.troubles.clear()
        fake.troubles.extend(cast("Trouble", each) if callable(each) else _answers(each) for each in answers)
        return CliRunner().invoke(app, ["cluster", *arguments, "--url", fake_url])

    return run


def sent(fake: FakeBroker) -> list[tuple[str, str, str]]:
    return [(each.method, each.url.path, each.content.decode()) for each in fake.requests if each.method != "GET"]


PLAN = {"plan": 8, "cells": [{"cell": 1, "node": "b"}], "drained": []}


def test_a_move_waits_until_the_cell_is_at_the_node(fake: FakeBroker, run: Run) -> None:
    result = run("move", "1", "b", answers=[PLAN, _at("a", "a"), _at("a", None), _at("a", "b")])
    assert (result.exit_code, result.stdout) == (0, "Cell 1 is at b.\n")
    assert result.stderr == "cell 1: a -> b\n"
    assert sent(fake) == [("PUT", "/v0/cluster/cells/1/node", '{"node":"b"}')]
    result = run("move", "1", "b", "--json", answers=[PLAN, _at("a", "b")])
    assert json.loads(result.stdout) == PLAN


def test_a_move_may_be_ordered_without_waiting_and_taken_back(fake: FakeBroker, run: Run) -> None:
    assert run("move", "1", "b", "--no-wait", answers=[PLAN]).stdout == "Cell 1 was ordered to b.\n"
    result = run("move", "1", "--undo", answers=[{"plan": 9, "cells": [], "drained": []}])
    assert result.stdout == "Cell 1 may be at any node.\n"
    assert sent(fake)[1:] == [("DELETE", "/v0/cluster/cells/1/node", "")]
    for wrong in (["move", "1"], ["move", "1", "b", "--undo"]):
        result = run(*wrong, answers=[])
        assert (result.exit_code, result.stderr) == (ExitCode.USAGE, "Error: Give either NODE or --undo.\n")


def test_a_drain_shows_each_cell_that_goes(fake: FakeBroker, run: Run) -> None:
    def gone(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    drained = {"plan": 8, "cells": [], "drained": ["a"]}
    answers = [drained, _at("a", "a"), _at("a", "b"), gone, _at(None, "b"), _at("b", "b", drained=("a",))]
    result = run("drain", "a", answers=answers)
    assert (result.exit_code, result.stdout) == (0, "a has no cells, and takes none until --undo.\n")
    assert result.stderr == "cell 1: a -> b\ncell 0: a -> b\n"
    assert sent(fake) == [("PUT", "/v0/cluster/nodes/a/drain", "{}")]
    result = run("drain", "a", "--undo", answers=[{"plan": 9, "cells": [], "drained": []}])
    assert result.stdout == "a may have cells again.\n"
    assert sent(fake)[1:] == [("DELETE", "/v0/cluster/nodes/a/drain", "")]


def test_a_wait_that_is_too_long_leaves_the_order_and_is_exit_status_3(run: Run) -> None:
    result = run("move", "1", "b", "--timeout", "0.001", answers=[PLAN, *[_at("a", "a")] * 50])
    assert result.exit_code == ExitCode.UNREACHABLE
    assert result.stderr.startswith("Error: Not done after 0.001 s: cell 1. The order stays; `topics cluster status`")


def test_a_refused_order_is_shown(run: Run) -> None:
    told = "There is no node of that name. The nodes are a, b."
    refusal = error(400, "invalid_request", told, {"field": "node"})

    def refuse(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
        return refusal

    result = run("move", "1", "c", answers=[refuse])
    assert (result.exit_code, result.stderr) == (ExitCode.REFUSED, f"Error: {told}\n")


def test_orders_in_force_are_in_the_status(run: Run) -> None:
    found = _at("a", "a", wanted={1: "b"}, drained=("b",))
    lines = run("status", answers=[found]).stdout.splitlines()
    assert lines[1:4] == [
        "CELL  STATE  RESTARTS  NODE  WANTED  GENERATION  HTTP                   KAFKA",
        "   0  ready         0  a     -                2  http://127.0.0.1:4100  -",
        "   1  ready     1,000  a     b                2  http://127.0.0.1:4101  -",
    ]
    assert lines[-1].split()[:2] == ["b", "drained"]
    assert json.loads(run("status", "--json", answers=[found]).stdout) == found


def test_a_new_format_is_begun_by_a_command(fake: FakeBroker, run: Run) -> None:
    answers = [{"format": 2, "revision": 1}]
    assert run("finalize", answers=answers).stdout == "The cluster has format 2.\n"
    assert sent(fake) == [("POST", "/v0/cluster/finalize", "{}")]
    assert json.loads(run("finalize", "--json", answers=answers).stdout) == answers[0]
