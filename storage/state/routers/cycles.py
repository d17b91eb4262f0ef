"""Finds cycles of routers. Pure.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


def find_cycle(edges: Iterable[tuple[str, str]], source: str, dest: str) -> list[str] | None:
    """The shortest cycle that source → dest would close: [source, dest, …, source]; None when it closes none."""
    following: dict[str, list[str]] = {}
    for start, end in edges:
        following.setdefault(start, []).append(end)
    came_from = {dest: ""}
    queue = deque([dest])
    while queue:
        name = queue.popleft()
        if name == source:
            return [source, *_path_to(source, came_from)]
        for each in sorted(following.get(name, ())):
            if each not in came_from:
                came_from[each] = name
                queue.append(each)
    return None


def _path_to(name: str, came_from: dict[str, str]) -> list[str]:
    path: list[str] = []
    while name:
        path.append(name)
        name = came_from[name]
    return path[::-1]
