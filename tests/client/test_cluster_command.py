"""`topics cluster status` shows the cells of a set."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from tests.client.fake_broker import FakeBroker, Trouble, answer
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
    nodes = [
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
