"""Which cells a watch of topics concerns, when their partitions are in several.

A start names partitions by `partition` and `partitions`, or none: then it is partition 0.

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.live import watch_options
from storage.records import MAX_PARTITIONS, address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.gateway.locating import Locating


def numbers_of(start: Any) -> list[int]:
    """The partitions of a start, or of a command, each once. [0] if they are invalid: the cell answers with the
    error."""
    if not isinstance(start, dict):
        return [0]
    fields: dict[str, Any] = {**start}
    one, many = fields.get("partition"), fields.get("partitions")
    if many is not None and not isinstance(many, list):
        return [0]
    numbers: list[Any] = [*([] if one is None else [one]), *(many or [])]
    if many is None and one is None:
        return [0]
    if not numbers or not all(type(each) is int and 0 <= each < MAX_PARTITIONS for each in numbers):
        return [0]
    return list(dict.fromkeys(numbers))


async def cells_of(locating: Locating, name: str, start: Any, headers: dict[bytes, bytes]) -> dict[int, list[int]]:
    """The partitions of a start by cell. Raises PeerUnavailable."""
    found: dict[int, list[int]] = {}
    for number in numbers_of(start):
        found.setdefault(await locating.cell(address(name, number), headers), []).append(number)
    return found


async def divided(
    locating: Locating, starts: Mapping[str, Any], headers: dict[bytes, bytes]
) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """The starts of each cell, and the addresses of all. If they are too many, all go to cell 0, which refuses them.
    Raises PeerUnavailable."""
    if sum(len(numbers_of(start)) for start in starts.values()) > watch_options.MAX_TOPICS:
        return {0: {**starts}}, []
    by_cell: dict[int, dict[str, Any]] = {}
    addresses: list[str] = []
    for name, start in starts.items():
        cells = await cells_of(locating, name, start, headers)
        addresses += [address(name, number) for numbers in cells.values() for number in numbers]
        for cell, numbers in cells.items():
            by_cell.setdefault(cell, {})[name] = start if len(cells) == 1 else part_of(start, numbers)
    return by_cell, addresses


def part_of(start: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
    """The same start, of these partitions."""
    rest = {field: value for field, value in start.items() if field != "partition"}
    return {**rest, "partitions": numbers}


def opened(
    starts: Mapping[str, Any], by_cell: Mapping[int, Mapping[str, Any]], said: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """The answer to the client about each topic, from the answers of its cells."""
    found: dict[str, Any] = {}
    for name, start in starts.items():
        by_number: dict[int, dict[str, Any]] = {}
        for cell, topics in said.items():
            value = topics.get(name)
            if value is not None:
                # A cell does not number the only partition that it was asked for.
                first = numbers_of(by_cell[cell][name])[0]
                for part in value.get("partitions") or [{"partition": first, **value}]:
                    by_number[part["partition"]] = part
        ordered = [
            by_number[number] for number in dict.fromkeys((*numbers_of(start), *by_number)) if number in by_number
        ]
        if ordered:
            whole = {field: seq for field, seq in ordered[0].items() if field != "partition"}
            found[name] = {**whole, "partitions": ordered} if len(ordered) > 1 else whole
    return found
