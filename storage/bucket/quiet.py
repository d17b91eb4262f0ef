"""Whether nothing runs on the objects of a cluster: for commands that need that.

The sign of life of each process that owned a cell last is asked for by its name. All others are looked for in a
listing, which may show some of them only: a process that owns nothing does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.bucket import keys
from storage.bucket.requests import Steps, get_patiently, names_patiently, wait
from storage.bucket.signs import TTL_S


def signs_of_life(owners: Iterable[str], ttl_s: float = TTL_S) -> Steps[list[str]]:
    """The names of the signs of life that change within TTL. `owners`: nonces. Raises Unanswered."""
    asked = {keys.sign(nonce) for nonce in owners}
    first = yield from _look(asked)
    yield from wait(ttl_s)
    again = yield from _look(asked)
    return sorted(key for key in first.keys() | again.keys() if again.get(key) not in (None, first.get(key)))


def _look(asked: Iterable[str]) -> Steps[dict[str, bytes | None]]:
    names = set(asked)
    for folder in (keys.NODES, keys.MEMBERS):
        names |= set((yield from names_patiently(folder)))
    found: dict[str, bytes | None] = {}
    for name in sorted(names):
        found[name] = yield from get_patiently(name)
    return found
