"""The status of the set: health, readiness, the list of its cells, and their metrics.

Health is answered from the states seen last, so that no cell can delay it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

import kernel
from broker import VERSION
from broker.api import Request
from broker.cells import PeerUnavailable, read_restarts
from broker.cluster import NodeState, read_node_counts
from broker.content import Answer, in_slices, prefers_json, yield_to_loop
from broker.gateway.addresses import addresses, host_of
from broker.gateway.asking import LIST_S, OK, Asking, Part, refused
from broker.gateway.heads import front, with_body
from broker.gateway.state import State
from broker.relay import Counts, read_counts
from broker.telemetry import METRICS, as_text, process
from storage import Sample, ShuttingDown

if TYPE_CHECKING:
    from broker.cluster import ClusterMap, NodeCounts, Owner
    from broker.gateway.forward import Forwarder
    from broker.gateway.gateway import Gateway

_TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
#: How often the cells are asked for their state, and how long one may take to answer.
LOOK_S: Final = 1.0
PATIENCE_S: Final = 2.0
#: How often it is looked at whether a cell has another owner.
NOTICE_S: Final = 0.1
#: Bytes of samples that get their label before other requests run.
_SLICE_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{?)", re.MULTILINE)
_FAMILY: Final = b"# HELP "
_READY: Final = b"/v0/ready"
_ASK_READY: Final = with_body(front(b"GET", _READY, [(b"host", b"localhost")]), b"")
#: The `cell` label of the gateway's own metrics.
OWN: Final = b"gateway"


class Status:
    """The status of one gateway and its cells."""

    def __init__(self, gateway: Gateway, forwarder: Forwarder, asking: Asking) -> None:
        self._gateway = gateway
        self._forwarder = forwarder
        self._asking = asking
        self._scraping = asyncio.Lock()
        #: In a cluster: all cells were ready at the same time, so this node has found its place.
        self._was_whole = False

    async def watch(self) -> None:
        """Ask the cells for their state again and again, forever."""
        async with asyncio.TaskGroup() as following:
            for cell in self._gateway.upstreams:
                following.create_task(self._follow(cell.number))
            await self._read_restarts()

    async def _read_restarts(self) -> None:
        while True:
            self._gateway.restarts = read_restarts(self._gateway.run_folder)
            await asyncio.sleep(LOOK_S)

    async def _follow(self, number: int) -> None:
        """Ask one cell again and again, and at once when it has another owner."""
        while True:
            owner = self._owner(number)
            await self._look(number)
            for _ in range(round(LOOK_S / NOTICE_S)):
                if self._owner(number) != owner:
                    break
                await asyncio.sleep(NOTICE_S)

    def _owner(self, number: int) -> Owner | None:
        known = None if self._gateway.cluster is None else self._gateway.cluster.read()
        return None if known is None else known.owner(number)

    async def _look(self, number: int) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                exchange = await self._forwarder.begin(number, _ASK_READY, changes=False)
                try:
                    head = await exchange.head()
                    await exchange.body(1 << 20)
                finally:
                    exchange.close()
        except (PeerUnavailable, TimeoutError):
            self._gateway.states[number] = State.DOWN
            return
        self._gateway.states[number] = State.READY if head.status < 500 else State.STARTING

    # -- answers -----------------------------------------------------------------------------------------------------

    def health(self, _request: Any) -> Answer:
        """Whether the gateway is alive, and the state of each cell when it was last asked."""
        gateway = self._gateway
        return Answer(
            msgspec.json.encode(
                {
                    "status": "ok",
                    "version": VERSION,
                    "uptime_ms": gateway.uptime_ms(),
                    "cluster_id": gateway.set_id,
                    "set_id": gateway.set_id,
                    "kernel": "compiled" if kernel.COMPILED else "python",
                    "cells": self._cells(),
                    "gateways": self._gateways(),
                    **self._nodes(),
                }
            )
        )

    async def ready(self, request: Request) -> Answer:
        """The set is ready when all cells are. A node of a cluster is ready from then on while any cell is: while one
        moves, all nodes would be taken out of service otherwise. Raises PeerUnavailable, ShuttingDown."""
        if self._gateway.stopping:
            raise ShuttingDown
        if self._was_whole:
            asked = (self._try_ask(request, cell.number, _READY, PATIENCE_S) for cell in self._gateway.upstreams)
            answered = [part for part in await request.unless_gone(_all(asked)) if part is not None]
            parts = [part for part in answered if part.head.status == OK] or answered
        else:
            parts = []
        if not parts:
            parts = await request.unless_gone(self._asking.ask_all(request, target=_READY, patience_s=PATIENCE_S))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        whole = len(parts) == len(self._gateway.upstreams)
        self._was_whole |= whole and self._gateway.cluster is not None
        topics = sum(msgspec.json.decode(part.body)["topics"] for part in parts)
        return Answer(msgspec.json.encode({"status": "ready", "wal_replay_complete": whole, "topics": topics}))

    async def cluster(self, request: Request) -> Answer:
        """The cells of the set, with the addresses at which this client reaches them directly."""
        gateway = self._gateway
        scheme, host = request.scope["scheme"], host_of(request.headers.get(b"host"), request.scope.get("server"))
        cells = [{**cell, **addresses(gateway, cell["cell"], scheme=scheme, host=host)} for cell in self._cells()]
        found = {"set_id": gateway.set_id, "home_cells": len(cells), "cells": cells, "gateways": self._gateways()}
        return Answer(msgspec.json.encode({**found, **self._nodes()}))

    def _cells(self) -> list[dict[str, Any]]:
        """The cells, in a cluster with the node that owns each."""
        gateway = self._gateway
        known = None if gateway.cluster is None else gateway.cluster.read()
        cells: list[dict[str, Any]] = []
        for number, state in enumerate(gateway.states):
            cell: dict[str, Any] = {
                "cell": number,
                "state": state,
                "restarts": gateway.restarts.get(f"cell-{number:02d}", 0),
            }
            owner = None if known is None else known.owner(number)
            if owner is not None:
                cell |= {"node": owner.node, "generation": owner.generation}
            takeover = None if known is None else known.takeover(number)
            if takeover is not None:
                standing = takeover.standing
                cell["takeover"] = {
                    "node": takeover.node,
                    "state": standing.state,
                    "since_ms": standing.since_ms,
                    "progress": standing.progress,
                }
            if known is not None and number in known.plan.cells:
                cell["wanted"] = known.plan.cells[number]
            cells.append(cell)
        return cells

    def _nodes(self) -> dict[str, Any]:
        """In a cluster: its nodes, and the name of the one that answers. `age_ms`: time since this one saw a sign of
        life."""
        known = None if self._gateway.cluster is None else self._gateway.cluster.read()
        if known is None:
            return {}
        at = time.time() * 1000
        nodes: list[dict[str, Any]] = []
        for each in known.nodes:
            node: dict[str, Any] = {
                "node": each.node,
                "state": each.state,
                "age_ms": max(0, round(at - each.seen_at_ms)),
            }
            node["cells"] = [cell for cell, owner in enumerate(known.cells) if owner and owner.node == each.node]
            if each.http is not None:
                node["http"] = str(each.http)
            if each.version:
                node["version"] = each.version
            node["formats"] = each.formats
            if each.node in known.plan.drained:
                node["drain"] = True
            nodes.append(node)
        return {"node": known.me, "nodes": nodes, "plan": known.plan.number}

    def _gateways(self) -> list[dict[str, int]]:
        restarts = self._gateway.restarts
        names = [f"gateway-{number:02d}" for number in range(self._gateway.settings.gateways)]
        return [{"gateway": number, "restarts": restarts.get(name, 0)} for number, name in enumerate(names)]

    async def metrics(self, request: Request) -> Answer:
        """The metrics of the cells that answer, with a label `cell`, and those of the gateway. A node of a cluster has
        those of its own cells, so that each cell is in the answer of one node."""
        async with self._scraping:
            here, elsewhere = self._cells_here()
            asked = (self._try_ask(request, number) for number in here)
            parts = [part for part in await request.unless_gone(_all(asked)) if part is not None]
            if (refusal := refused(parts or await self._judged(request, elsewhere))) is not None:
                return refusal.to_client(request)
            if prefers_json(request.headers.get(b"accept", b"")):
                return Answer(await _as_json(parts))
            texts = [(b"%d" % part.cell, part.body) for part in parts]
            texts.append((OWN, await as_text(self._families())))
            return Answer(await _as_text(texts), content_type=_TEXT)

    def _cells_here(self) -> tuple[list[int], list[int]]:
        """The cells of this node, and those of other nodes. All are here without a cluster."""
        known = None if self._gateway.cluster is None else self._gateway.cluster.read()
        cells = range(len(self._gateway.upstreams))
        elsewhere = [] if known is None else [cell for cell in cells if known.is_elsewhere(cell)]
        return [cell for cell in cells if cell not in elsewhere], elsewhere

    async def _judged(self, request: Request, cells: Iterable[int]) -> list[Part]:
        """The answer of the first of these cells that answers: it says whether the key may have metrics at all."""
        for number in cells:
            if (part := await request.unless_gone(self._try_ask(request, number))) is not None:
                return [part]
        return []

    async def _try_ask(
        self, request: Request, number: int, target: bytes | None = None, patience_s: float | None = None
    ) -> Part | None:
        if patience_s is None:  # a cell that hangs must not keep the metrics of the others from a scraper
            patience_s = PATIENCE_S if self._gateway.states[number] is State.DOWN else LIST_S
        try:
            return await self._asking.ask(request, number, target=target, patience_s=patience_s)
        except PeerUnavailable:
            return None

    def _families(self) -> Iterator[Any]:
        gateway = self._gateway
        yield METRICS.whole("topics_uptime_seconds", gateway.uptime_ms() / 1000)
        yield METRICS.whole("topics_ready", int(all(state is State.READY for state in gateway.states)))
        yield METRICS.family(
            "topics_process_restarts",
            [Sample((("process", name),), count) for name, count in sorted(gateway.restarts.items())],
        )
        if gateway.cluster is not None:
            yield from _of_relay(read_counts(gateway.run_folder))
            yield from _of_node(gateway.cluster.read(), read_node_counts(gateway.run_folder))
        yield from process.families()
        yield from gateway.http_metrics.families()


async def _all(asked: Iterable[Coroutine[Any, Any, Part | None]]) -> list[Part | None]:
    return [*await asyncio.gather(*asked)]


def _of_node(known: ClusterMap | None, counts: NodeCounts) -> Iterator[Any]:
    """The metrics of the nodes and owners, as this node knows them."""
    if known is not None:
        states = Counter(node.state for node in known.nodes)
        yield METRICS.family(
            "topics_cluster_nodes", [Sample((("state", state),), states[state]) for state in NodeState]
        )
        yield METRICS.whole("topics_cluster_cells_without_owner", sum(owner is None for owner in known.cells))
    yield METRICS.whole("topics_cluster_takeovers", counts.taken)
    yield METRICS.whole("topics_cluster_handovers", counts.given)
    yield METRICS.family(
        "topics_cluster_cells_lost", [Sample((("reason", reason),), n) for reason, n in sorted(counts.lost.items())]
    )


def _of_relay(counts: Counts) -> Iterator[Any]:
    """The metrics of the connections to other nodes."""
    yield METRICS.family(
        "topics_cluster_links",
        [Sample((("direction", name),), value) for name, value in (("in", counts.incoming), ("out", counts.outgoing))],
    )
    yield METRICS.family(
        "topics_cluster_links_opened",
        [Sample((("direction", name),), value) for name, value in (("in", counts.accepted), ("out", counts.connected))],
    )
    yield METRICS.family(
        "topics_cluster_link_bytes",
        [
            Sample((("direction", name),), value)
            for name, value in (("in", counts.received_bytes), ("out", counts.sent_bytes))
        ],
    )
    for name, reasons in (
        ("topics_cluster_links_refused", counts.refused),
        ("topics_cluster_links_failed", counts.failed),
    ):
        yield METRICS.family(name, [Sample((("reason", reason),), value) for reason, value in sorted(reasons.items())])


async def _as_text(texts: list[tuple[bytes, bytes]]) -> bytes:
    """Render the families of all cells, each once with the samples of every cell. Yields to other tasks between
    families."""
    heads: dict[bytes, bytes] = {}
    samples: dict[bytes, list[bytes]] = {}
    for label, text in texts:
        replacement = b'\\1{cell="%b"' % label
        for block in text.split(_FAMILY)[1:]:
            await asyncio.sleep(0)
            name = block[: block.find(b" ")]
            help_line, type_line, lines = block.split(b"\n", 2)
            heads.setdefault(name, b"%b%b\n%b\n" % (_FAMILY, help_line, type_line))
            labelled = samples.setdefault(name, [])
            at = 0
            while at < len(lines):
                end = lines.find(b"\n", at + _SLICE_BYTES) + 1 or len(lines)
                labelled.append(_NAME.sub(lambda found, to=replacement: _labelled(found, to), lines[at:end]))
                at = end
                await yield_to_loop()
    return b"".join(heads[name] + b"".join(found) for name, found in samples.items())


def _labelled(found: re.Match[bytes], replacement: bytes) -> bytes:
    return found.expand(replacement) + (b"," if found[2] else b"}")


async def _as_json(parts: list[Part]) -> bytes:
    families: dict[str, dict[str, Any]] = {}
    for part in parts:
        for raw in _metrics.decode(part.body).metrics:
            await yield_to_loop()
            family = _family.decode(raw)
            name = msgspec.json.decode(family["name"], type=str)
            known = families.setdefault(name, {**family, "samples": []})
            async for each in in_slices(_samples.decode(family["samples"]), each=_SAMPLE_BYTES):
                sample = _sample.decode(each)
                sample["labels"] = {"cell": str(part.cell), **sample["labels"]}
                known["samples"].append(msgspec.Raw(msgspec.json.encode(sample)))
    return msgspec.json.encode({"metrics": [*families.values()]})


class _Metrics(msgspec.Struct):
    metrics: list[msgspec.Raw]


#: What the label of one sample counts for in a slice.
_SAMPLE_BYTES: Final = 1024
_metrics = msgspec.json.Decoder(_Metrics)
_family: Final[msgspec.json.Decoder[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_samples: Final[msgspec.json.Decoder[list[msgspec.Raw]]] = msgspec.json.Decoder(list[msgspec.Raw])
_sample: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])
