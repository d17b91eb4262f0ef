"""Every route and every command with every set of scopes and prefixes.

The list of routes comes from the application, the required scopes from `auth_calls.EXPECTED`: a new route fails here
until the table has it.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import httpx
import pytest

from broker.api.app import build_app
from broker.api.operation import Operation
from broker.api.routes.commands import Commands
from broker.auth.rules import COMMANDS
from broker.content.answers import Answer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.auth_calls import ALWAYS, BODIES, EXPECTED, GRANTS, OPEN, bearer, configured, key
from tests.http.conftest import client_of

REFUSED = (401, 403)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": configured("alpha", "beta")})


def served(broker: Broker) -> dict[tuple[str, str], int | None]:
    """Method and path of every route → which of its parameters is a name."""
    return {
        (method, re.sub(r"\{[^}]*\}", "{}", route.template)): next(
            (at for at, parameter in enumerate(route.parameters) if parameter in ("topic", "router")), None
        )
        for route in build_app(broker).table
        for method in route.operations
    }


def path_of(template: str, name: str, at: int | None = 0) -> str:
    """The path with the name as its parameter `at`."""
    parts = template.split("{}")
    named = at or 0
    return "1".join(parts[: named + 1]) + (name + "1".join(parts[named + 1 :]) if len(parts) > 1 else "")


def is_proxys(template: str) -> bool:
    """Whether it refuses in the format of the REST Proxy."""
    return template.startswith(("/topics", "/consumers", "/brokers", "/v3/"))


def test_every_served_route_has_an_expected_rule(broker: Broker) -> None:
    unknown = {route for route in served(broker) if route not in EXPECTED}
    assert unknown == set()
    assert len(served(broker)) >= 38


def test_an_operation_without_a_rule_cannot_be_declared() -> None:
    async def handler(_: object) -> Answer:
        return Answer(b"")

    with pytest.raises(TypeError, match="rule"):
        Operation(method="POST", path="/v0/brand/new", handler=handler)  # pyright: ignore[reportCallIssue]


async def test_every_route_requires_its_scopes_and_prefix(broker: Broker) -> None:
    wrong: list[str] = []
    async with client_of(broker) as client:
        for (method, template), named in served(broker).items():
            expected = EXPECTED[method, template]
            for scopes in GRANTS:
                for prefix in ("", "alpha", "beta"):
                    # Groups belong to the key that made them, so each key has one of its own.
                    own = template.startswith("/consumers/")
                    path = path_of(template, f"alpha-{prefix}-{scopes}" if own else "alpha-1", named)
                    body = BODIES.get((method, template))
                    answer = await _call(client, method, path, key(scopes, prefix), body)
                    enough = expected in (OPEN, ALWAYS) or set(expected) <= set(scopes)
                    whole = template.startswith("/v0/admin/")  # of all topics
                    allowed = enough and not (named is not None and prefix == "beta") and not (whole and prefix)
                    if (answer.status_code == 403) == allowed or answer.status_code == 401:
                        wrong.append(f"{method} {path} {scopes} {prefix}: {answer.status_code} {answer.text[:100]}")
    assert wrong == []


async def test_every_route_except_open_routes_needs_a_key(broker: Broker) -> None:
    wrong: list[str] = []
    async with client_of(broker) as client:
        for method, template in served(broker):
            for given in (None, "nobody", f"{key('r')}x", key("r").upper()):
                answer = await _call(client, method, path_of(template, "alpha-1"), given)
                if (answer.status_code == 401) != (EXPECTED.get((method, template)) not in (OPEN, ALWAYS)):
                    wrong.append(f"{method} {template} {given}: {answer.status_code}")
                if answer.status_code == 401 and is_proxys(template):
                    assert answer.json()["error_code"] == 40101
                    assert answer.headers["www-authenticate"] == 'Basic realm="topics"'
                elif answer.status_code == 401:
                    assert answer.json()["error"]["code"] == "unauthorized"
                    assert answer.headers["www-authenticate"] == "Bearer"
    assert wrong == []


async def test_probe_auth_requires_a_key_on_open_routes(engine: Engine, settings: Settings) -> None:
    broker = Broker(engine, settings.model_copy(update={"probe_auth": True}))
    async with client_of(broker) as client:
        for (method, template), needed in EXPECTED.items():
            if needed == OPEN:
                assert (await _call(client, method, path_of(template, "start.js"), None)).status_code == 401
                assert (await _call(client, method, path_of(template, "start.js"), key("w"))).status_code == 403
                answer = await _call(client, method, path_of(template, "start.js"), key("r"))
                assert answer.status_code in (200, 307), (template, answer.text)
            elif needed == ALWAYS:
                assert (await _call(client, method, path_of(template, "start.js"), None)).status_code != 401


async def test_every_route_is_open_without_configured_keys(engine: Engine, tmp_path: Path) -> None:
    broker = Broker(engine, Settings(data_dir=tmp_path / "data", probe_auth=True))
    assert broker.gate is None
    async with client_of(broker) as client:
        for method, template in served(broker):
            assert (await _call(client, method, path_of(template, "alpha-1"), None)).status_code not in REFUSED


async def test_head_requires_the_scopes_and_prefix_of_get(broker: Broker) -> None:
    async with client_of(broker) as client:
        await client.put("/v0/topics/alpha", json={}, headers=bearer(key("a")))
        assert (await client.head("/v0/topics/alpha", headers=bearer(key("w")))).status_code == 403
        assert (await client.head("/v0/topics/alpha", headers=bearer(key("r", "beta")))).status_code == 403
        assert (await client.head("/v0/topics/alpha", headers=bearer(key("r", "alpha")))).status_code == 200


def test_every_command_of_a_websocket_is_in_the_table() -> None:
    cases = set(re.findall(r'case "(\w+)"', inspect.getsource(Commands.take)))
    assert cases == set(COMMANDS) == {"subscribe", "unsubscribe", "publish", "ping"}


async def _call(
    client: httpx.AsyncClient, method: str, path: str, given: str | None, body: dict[str, str] | None = None
) -> httpx.Response:
    headers = {} if given is None else bearer(given)
    if path.endswith("/overview/stream"):
        headers["accept"] = "text/plain"  # refused only after the checks of the key: a stream would never end
    if method in ("POST", "PUT", "PATCH"):
        return await client.request(method, path, json=body or {}, headers=headers)
    return await client.request(method, path, headers=headers)
