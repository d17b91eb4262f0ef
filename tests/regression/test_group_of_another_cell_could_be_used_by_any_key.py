"""In a set of cells, a key could make consumers in the group of another key, if the cell of the topic was not the one
that has the members of the group."""

from __future__ import annotations

from pathlib import Path

from broker.cells import home_cell
from tests.http.auth_calls import bearer, configured, key
from tests.http.calls import refused
from tests.http.proxy.calls import V2
from tests.support.cells_in_process import cells, client_of


async def test_the_home_cell_of_a_group_decides_who_may_use_it(tmp_path: Path) -> None:
    everything, mine, other = bearer(key("rwda")), bearer(key("r+w", "alpha")), bearer(key("r+w", "beta"))
    async with cells(tmp_path, api_keys=configured("alpha", "beta")) as made, client_of(made) as client:
        home = home_cell("g", 3)
        for cell in ((home + 1) % 3, (home + 2) % 3, home):
            topic = next(name for name in (f"beta-{each}" for each in range(100)) if made.home(name) == cell)
            await client.put(f"/v0/topics/{topic}", json={}, headers=everything)
            if cell == (home + 1) % 3:
                made_instance = await client.post("/consumers/g", json={"name": "i"}, headers=V2 | mine)
                assert made_instance.is_success, made_instance.text
            url = f"/v0/topics/{topic}/consumers/group:"
            refused(await client.put(f"{url}g", json={}, headers=other), 403, "forbidden")
            assert (await client.put(f"{url}free", json={}, headers=other)).is_success
            assert (await client.put(f"{url}g", json={}, headers=everything)).is_success
            assert (await client.delete(f"{url}g", headers=everything)).is_success
