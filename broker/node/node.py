"""Runs a node of a cluster: the gateways, and a process for each cell that the node owns just now or waits for.

    read what the cluster is → probe the store → relay, gateways → each second: show a sign of life, look at the other
    members, start and end processes of cells → [signal] give the cells away → gateways end → cells end → relay ends

It handles no request, and decides nothing that the safety of writes depends on: each process finds out from the bucket
whether it owns its cell.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import xxhash

from broker import VERSION
from broker.cells import Peers, PeerUnavailable, Role, write_restarts
from broker.cluster import (
    STEADY_S,
    Address,
    Held,
    Member,
    NameTaken,
    NodeCounts,
    Roll,
    cluster_map,
    planned,
    read_standing,
    spares_for,
    successor,
    to_leave,
    to_move,
    to_spread,
    to_take,
    without,
    write_node_counts,
    write_owners,
)
from broker.kafka import listen_for_kafka
from broker.lifecycle import ExitCode
from broker.net import CannotListen, listen, write_port_file
from broker.node.silence import END_S, Silence, Why
from broker.node.spares import Spares
from broker.settings import Advertised, Settings
from broker.supervisor import BACKLOG, Child, backoff_after, command, module_name, sockets_folder
from broker.telemetry import EXTEND, Notifier
from storage import StorageError
from storage.bucket import FORMATS, Location, StoreRefused, Unanswered, open_location, parse_location, probe, sign
from storage.cells.founding import look_at_cluster
from storage.platform import PosixFileSystem, take_lock

_log = structlog.get_logger("broker.cluster")

#: Between two signs of life, and while cells are given away. A process is asked what it does as often: one that serves,
#: and one that does not yet.
EVERY_S: Final = 1.0
HURRIED_S: Final = 0.25
#: No answer is waited for so long: before that, the process is killed.
ASK_S: Final = 60.0
#: The silence of a process that was asked is counted in steps of this length.
STEP_S: Final = 0.5
#: The store has this time for a request of the agent.
TIMEOUT_S: Final = 3.0
#: A node that starts looks for another process of its name for this time.
ENTER_S: Final = 2.5
#: It takes no cell before this time has passed, so that nodes that start together share the cells.
FIRST_TAKE_S: Final = 2.0
#: A draining node stops its cells after this time, whoever takes them.
DRAIN_S: Final = 30.0
CALL_S: Final = 2.0
#: A process of a stopping node is killed when it has not ended END_S after its drain. After a second signal it has this
#: time: one without data, and one of a cell, which puts its last writes into the bucket.
HURRIED_END_S: Final = 5.0
HURRIED_CELL_S: Final = 30.0
#: One that was killed and does not end hangs in the system. It is not waited for.
KILLED_S: Final = 5.0
_WILDCARDS: Final = ("0.0.0.0", "::", "")
#: A cell whose process ended in one of these ways belongs to another node, or should.
_GONE: Final = (ExitCode.OK, ExitCode.FENCED, ExitCode.STORE_REFUSED)
#: The codes of processes that did not own their cells any more, or may not have, and what metrics call them.
_LOST: Final[dict[int, str]] = {
    ExitCode.FENCED: "fenced",
    ExitCode.STORE_SILENT: "store_silent",
    ExitCode.STORE_REFUSED: "store_refused",
}


class CellProcess:
    """One process of a cell."""

    def __init__(
        self, cell: int, process: asyncio.subprocess.Process, nonce: str, began: float, silence: Silence
    ) -> None:
        self.cell = cell
        self.process = process
        self.nonce = nonce
        self.began = began
        self.generation = 0
        self.ready = False
        #: It was asked to end.
        self.stopping = False
        #: It was asked to give the cell to the process of this nonce.
        self.given_to = ""
        self.silence = silence

    @property
    def name(self) -> str:
        return f"cell-{self.cell:02d}"

    def kill(self, why: Why) -> None:
        _log.error("process_killed", process=self.name, reason=str(why))
        with suppress(ProcessLookupError):
            self.process.kill()

    def signal(self, number: int) -> None:
        self.stopping = True
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Node:
    """See the module."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], notifier: Notifier) -> None:
        """`environment`: what the processes get; it has the settings, and keys."""
        assert settings.cluster_url is not None
        self._settings = settings
        self._environment = {name: value for name, value in environment.items() if not name.startswith("NOTIFY_")}
        self._notifier = notifier
        self._location: Location = parse_location(settings.cluster_url)
        self._me, self._nonce = settings.node_name, secrets.token_hex(16)
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._code = ExitCode.OK
        self._cells: dict[int, CellProcess] = {}
        #: Cells whose process is being started.
        self._starting: set[int] = set()
        #: Of cells whose process ended by itself: the last wait, and the time before which none is started.
        self._waits: dict[int, tuple[float, float]] = {}
        self._restarts: dict[str, int] = {}
        self._counts = NodeCounts(lost=dict.fromkeys(_LOST.values(), 0))
        self._offers: dict[int, str] = {}
        #: The number of the plan that the offers are of.
        self._plan_number = 0
        self._ports: dict[int, tuple[socket.socket | None, socket.socket | None]] = {}
        self._spares = Spares(self._environment)
        self._children: list[tuple[Child, asyncio.Task[None]]] = []
        self._watching: set[asyncio.Task[None]] = set()
        self._is_silent = False

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run the node until a signal, or until it cannot continue. Returns the exit code."""
        root = str(self._settings.data_dir.absolute())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        try:
            lock = take_lock(PosixFileSystem(), root)
        except (StorageError, OSError) as error:
            return self._cannot_start(error, root)
        try:
            lock.write(f"{os.getpid()}\n")
            self._refuse_directory(root)
            cluster = await asyncio.to_thread(look_at_cluster, self._location)
            await asyncio.to_thread(probe, lambda: open_location(self._location), "probe", self._nonce)
            self._bucket = open_location(self._location, TIMEOUT_S)
            roll = Roll(self._bucket, self._me, self._nonce)
            await roll.enter(ENTER_S)
            return await self._run(root, cluster.cluster_id, cluster.cells, roll)
        except (StorageError, OSError, StoreRefused, Unanswered, NameTaken) as error:
            return self._cannot_start(error, root)
        finally:
            lock.release()

    def _cannot_start(self, error: Exception, root: str) -> ExitCode:
        reason = error.message if isinstance(error, StorageError) else str(error)
        if isinstance(error, Unanswered):
            reason = f"The store of {self._location} does not answer ({error})."
        _log.error("cannot_start", reason=reason, data_dir=root)
        return ExitCode.CANNOT_START

    def _refuse_directory(self, root: str) -> None:
        for name in ("FORMAT", "cells.json"):
            if (Path(root) / name).exists():
                raise OSError(f"{root} is a data directory; a node of a cluster needs an empty one, for its copies.")

    async def _run(self, root: str, cluster_id: str, count: int, roll: Roll) -> int:
        settings = self._settings
        public = listen(settings.host, settings.port)
        public.listen(BACKLOG)
        port = listen(
            settings.cluster_host,
            settings.cluster_port,
            host_from="TOPICS_CLUSTER_HOST",
            port_from="TOPICS_CLUSTER_PORT",
        )
        self._bind(range(count))
        self._role = Role(
            set_id=cluster_id,
            count=count,
            run=str(sockets_folder(root, xxhash.xxh3_128_hexdigest(f"{cluster_id}/{self._me}".encode()))),
            parent=os.getpid(),
            node=self._me,
            kafka_ports=tuple(each.getsockname()[1] for _, each in self._ports.values() if each is not None),
            http_ports=tuple(each.getsockname()[1] for each, _ in self._ports.values() if each is not None),
        )
        cluster = self._address(settings.cluster_advertised, settings.cluster_host, port)
        assert cluster is not None
        self._cluster: Address = cluster
        self._http = self._address(settings.advertised, settings.host, public)
        self._note(roll)
        its_role = msgspec.structs.replace(self._role, http_fd=port.fileno())
        self._start_child(Child("relay", module_name("broker.relay"), its_role, self._environment, self._note_restarts))
        its_role = msgspec.structs.replace(self._role, http_fd=public.fileno())
        for number in range(settings.gateways):
            self._start_child(
                Child(
                    f"gateway-{number:02d}",
                    module_name("broker.gateway"),
                    its_role,
                    self._environment,
                    self._note_restarts,
                )
            )
        scheme, (host, number, *_) = "https" if settings.tls_cert else "http", public.getsockname()
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{number}"
        _log.info("listening", url=url, docs=f"{url}/docs", data_dir=root, version=VERSION)
        if settings.port_file is not None:
            write_port_file(settings.port_file, number)
        self._peers = Peers({cell: self._role.peer_socket(cell) for cell in range(count)})
        notifying = asyncio.create_task(self._notifier.repeat(lambda: [] if not self._stop.is_set() else [EXTEND]))
        try:
            await self._keep(roll, url)
        finally:
            notifying.cancel()
            await self._wind_down(roll)
        _log.info("stopped", exit_code=int(self._code))
        return self._code

    def _on_signal(self) -> None:
        if self._stop.is_set():
            _log.info("stopping_at_once")
            self._hurry.set()
        else:
            _log.info("stopping", drain_ms=self._settings.drain_ms)
        self._stop.set()

    async def _wind_down(self, roll: Roll) -> None:
        self._notifier.notify("STOPPING=1", "STATUS=Stopping.", EXTEND)
        relay, *gateways = self._children
        await self._spares.close()
        await self._end(gateways)
        await self._end_cells()
        await self._end([relay])  # until here, cells that drain could call those of other nodes
        with suppress(Unanswered):
            await roll.leave()
        await self._peers.close()

    async def _end(self, children: list[tuple[Child, asyncio.Task[None]]]) -> None:
        def stop() -> None:
            for child, task in children:
                child.stop()
                if child.process is None or child.process.returncode is not None:
                    task.cancel()

        def kill() -> None:
            for child, task in children:
                if not task.done():
                    _log.error("process_killed", process=child.name, reason=str(Why.NOT_ENDED))
                    child.signal(signal.SIGKILL)

        await self._until_ended([task for _, task in children], stop, kill, HURRIED_END_S)

    async def _end_cells(self) -> None:
        def stop() -> None:
            for each in self._cells.values():
                each.signal(signal.SIGTERM)

        def kill() -> None:
            for each in self._cells.values():
                each.kill(Why.NOT_ENDED)

        await self._until_ended([*self._watching], stop, kill, HURRIED_CELL_S)

    async def _until_ended(
        self,
        tasks: Collection[asyncio.Task[None]],
        stop: Callable[[], None],
        kill: Callable[[], None],
        hurried_s: float,
    ) -> None:
        """Return when the tasks have ended, each of which waits for a process, or when that has taken too long even
        for killed ones. A second call of `stop` shortens the drain of the processes."""
        if not tasks:
            return
        ended = asyncio.gather(*tasks, return_exceptions=True)
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            stop()
            limit_s = self._settings.drain_ms / 1000 + END_S
            await asyncio.wait((ended, hurry), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and hurry.done():
                stop()
                await asyncio.wait((ended,), timeout=hurried_s)
            if not ended.done():
                kill()
                await asyncio.wait((ended,), timeout=KILLED_S)
        finally:
            hurry.cancel()

    def _start_child(self, child: Child) -> None:
        task = asyncio.create_task(child.run(), name=child.name)
        self._children.append((child, task))

        def ended(_: object) -> None:
            if child.code is not None:
                _log.error("process_cannot_run", process=child.name, exit_code=child.code)
                self._code = ExitCode(child.code)
                self._hurry.set()
                self._stop.set()

        task.add_done_callback(ended)

    # -- each second ---------------------------------------------------------------------------------------------------

    async def _keep(self, roll: Roll, url: str) -> None:
        loop = asyncio.get_running_loop()
        began, drained_by, was_whole = loop.time(), 0.0, False
        while not self._hurry.is_set():
            stopping = self._stop.is_set()
            if stopping and not drained_by:
                drained_by = loop.time() + DRAIN_S
            takers = [each for each in planned(roll.members, roll.plan).values() if not each.draining]
            if stopping and (not self._cells or loop.time() > drained_by or not takers):
                return
            at = loop.time()
            mine = self._member(draining=self._gives_all(roll))
            try:
                await roll.round(mine, hurried=not was_whole)
            except Unanswered as error:
                if not self._is_silent:
                    _log.warning("store_silent", error=str(error))
                self._is_silent = True
            except NameTaken as error:
                _log.error("cannot_start", reason=str(error), data_dir=str(self._settings.data_dir.absolute()))
                self._code = ExitCode.CANNOT_START
                self._hurry.set()
                return
            else:
                self._is_silent = False
                whole = self._note(roll)
                if whole and not was_whole:
                    self._notifier.notify("READY=1", f"STATUS=Serving at {url}.")
                    _log.info("cells_ready", url=url, cells=self._role.count, set_id=self._role.set_id)
                was_whole = whole
                if at - began >= FIRST_TAKE_S or stopping:
                    await self._act(roll)
            hurried = stopping or bool(self._offers) or roll.is_anyone_late or self._is_anyone_starting(roll)
            if was_whole and not hurried and not self._is_silent:
                await self._spares.keep(spares_for(self._me, self._role.count, self._members(roll), roll.plan))
            left = at + (HURRIED_S if hurried else EVERY_S) - loop.time()
            waiting = self._hurry if stopping else self._stop
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting.wait(), max(0.0, left))

    def _is_anyone_starting(self, roll: Roll) -> bool:
        """Whether a process here or at another node will own a cell soon."""
        others = any(not held.ready for each in roll.members.values() for held in each.cells.values())
        return others or any(not each.ready for each in self._cells.values())

    def _gives_all(self, roll: Roll) -> bool:
        """Whether this node gives its cells away and takes none."""
        return self._stop.is_set() or self._me in roll.plan.drained

    def _members(self, roll: Roll) -> dict[str, Member]:
        """All that are there, this node too, as the plan wants them."""
        return planned({**roll.members, self._me: self._member(draining=self._gives_all(roll))}, roll.plan)

    def _member(self, *, draining: bool) -> Member:
        return Member(
            node=self._me,
            nonce=self._nonce,
            cluster=self._cluster,
            http=self._http,
            cells={cell: self._held(each) for cell, each in self._cells.items()},
            draining=draining,
            offers=dict(self._offers),
            version=VERSION,
            formats=FORMATS,
        )

    def _held(self, each: CellProcess) -> Held:
        settings, (http, kafka) = self._settings, self._ports[each.cell]
        return Held(
            nonce=each.nonce,
            generation=each.generation,
            ready=each.ready,
            standing=None if each.ready else read_standing(Path(self._role.run), each.cell, each.nonce),
            http=self._address(settings.cell_advertised, settings.host, http, each.cell),
            kafka=self._address(settings.kafka_advertised, settings.kafka_host or settings.host, kafka, each.cell),
        )

    def _note(self, roll: Roll) -> bool:
        """Tell the other processes of the node who owns the cells. Whether each has an owner."""
        now_ms = time.time() * 1000
        found = cluster_map(
            self._me,
            self._role.count,
            self._members(roll),
            roll.silent,
            lambda node: round(now_ms - roll.age_s(node) * 1000),
            roll.plan,
        )
        with suppress(OSError):
            write_owners(Path(self._role.run), found)
        self._note_restarts()
        return all(each is not None for each in found.cells)

    async def _act(self, roll: Roll) -> None:
        """Start and end processes, and give cells away, by what the members say."""
        now = asyncio.get_running_loop().time()
        members = self._members(roll)
        for cell in to_leave(self._me, members, roll.suspects):
            self._cells[cell].signal(signal.SIGTERM)
        for cell in to_take(self._me, self._role.count, members, roll.suspects, roll.plan):
            if cell not in self._cells and self._waits.get(cell, (0.0, 0.0))[1] <= now:
                await self._start_cell(cell)
        self._offer(roll, without(roll.suspects, members), now)
        for cell, node in self._offers.items():
            each, to = self._cells[cell], members.get(node)
            waiting = None if to is None else to.cells.get(cell)
            # Not before that process has said that it waits: until it runs, nobody would serve the cell.
            if (
                waiting is not None
                and waiting.standing is not None
                and waiting.nonce != each.given_to
                and not each.stopping
            ):
                each.given_to = waiting.nonce
                _log.info("cell_given", cell=cell, node=node)
                self._watch_over(self._give(each), f"give-{cell:02d}")

    def _offer(self, roll: Roll, members: Mapping[str, Member], now: float) -> None:
        plan, changed = roll.plan, roll.plan.number != self._plan_number
        self._plan_number = plan.number
        self._offers = {
            cell: node
            for cell, node in self._offers.items()
            if (each := self._cells.get(cell)) is not None
            and node in members
            and not members[node].draining
            and (each.given_to or not changed)  # else it is decided anew
        }
        members = {**members, self._me: self._member(draining=self._gives_all(roll))}
        if self._stop.is_set():
            for cell, each in self._cells.items():
                if not each.ready:
                    each.signal(signal.SIGTERM)
                elif cell not in self._offers and (node := successor(cell, self._me, self._promising(members), plan)):
                    self._offers[cell] = node
        elif self._me in plan.drained:
            ready = [cell for cell, each in self._cells.items() if each.ready]
            if ready and not self._offers and (node := successor(min(ready), self._me, members, plan)):
                self._offers[min(ready)] = node
        else:
            steady = now - roll.changed_at >= STEADY_S
            # A node that comes and goes gets its cells back when it has been there for a while.
            if (steady or roll.planned_at > roll.changed_at) and (move := to_move(self._me, members, plan)):
                self._offers[move[0]] = move[1]
            elif steady and (spread := to_spread(self._me, self._role.count, members, plan)):
                self._offers[spread[0]] = spread[1]

    def _promising(self, members: Mapping[str, Member]) -> dict[str, Member]:
        """With what this node has offered up to now."""
        return {**members, self._me: self._member(draining=True)}

    # -- processes of cells --------------------------------------------------------------------------------------------

    # What they answer is waited for beside the rounds: with one hung process, others would suspect the whole node.

    async def _give(self, each: CellProcess) -> None:
        try:
            await self._peers.call(each.cell, "give", each.given_to, timeout_s=CALL_S)
        except PeerUnavailable:
            each.given_to = ""  # again; a process that gives the cell already does nothing more

    async def _look(self, each: CellProcess) -> None:
        """Ask the process again and again what it does, and kill it if it is silent for too long."""
        while True:
            asking = asyncio.create_task(self._ask(each))
            try:
                while not (await asyncio.wait((asking,), timeout=STEP_S))[0]:
                    self._count_silence(each, STEP_S, Why.SILENT)
            finally:
                asking.cancel()
            every_s = EVERY_S if each.ready else HURRIED_S
            self._count_silence(each, every_s, await asking)
            await asyncio.sleep(every_s)

    def _count_silence(self, each: CellProcess, seconds: float, why: Why | None) -> None:
        if each.silence.add(seconds, why) and why is not None:
            each.kill(why)

    async def _ask(self, each: CellProcess) -> Why | None:
        """Note what the process answers. Returns what is wrong with it if that lasts; None: it runs."""
        try:
            found = await self._peers.call(each.cell, "standing", None, timeout_s=ASK_S)
        except PeerUnavailable as error:
            if error.outcome != "none":
                return None  # it broke the call off, as an owner does that may not answer now
        except StorageError:
            return None
        else:
            if found["nonce"] == each.nonce:
                self._counts.taken += not each.ready
                each.generation, each.ready = found["generation"], True
                return None
        if each.ready or each.stopping or each.given_to:
            return Why.NOT_ENDED
        return None if read_standing(Path(self._role.run), each.cell, each.nonce) else Why.NOT_STARTED

    async def _start_cell(self, cell: int) -> None:
        """Start a process for the cell, unless there is one, or one is being started."""
        if cell in self._cells or cell in self._starting:
            return
        self._starting.add(cell)
        try:
            await self._start_process(cell)
        except OSError as error:  # no memory, or too many processes: perhaps not for long
            now = asyncio.get_running_loop().time()
            waited_s = backoff_after(self._waits.get(cell, (0.0, 0.0))[0], 0.0)
            self._waits[cell] = waited_s, now + waited_s
            _log.error("process_not_started", process=f"cell-{cell:02d}", error=str(error), again_in_s=waited_s)
        finally:
            self._starting.discard(cell)

    async def _start_process(self, cell: int) -> None:
        http, kafka = self._ports[cell]
        role = msgspec.structs.replace(
            self._role,
            cell=cell,
            nonce=secrets.token_hex(16),
            http_fd=None if http is None else http.fileno(),
            kafka_fd=None if kafka is None else kafka.fileno(),
        )
        process = self._spares.take(role)
        if process is None:
            fds = tuple(each.fileno() for each in (http, kafka) if each is not None)
            process = await asyncio.create_subprocess_exec(
                *command(module_name("broker"), role), env=self._environment, pass_fds=fds
            )
        silence = Silence(self._settings.drain_ms / 1000)
        each = CellProcess(cell, process, role.nonce, asyncio.get_running_loop().time(), silence)
        self._cells[cell] = each
        self._watch_over(self._watch(each), each.name)

    def _watch_over(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _forget(self, nonce: str) -> None:
        """Delete the sign of life of a process that has ended before it owned its cell, so that it can show no other.
        Those of owners are deleted by the next owners, and others look at them until then."""
        with suppress(Unanswered):
            await asyncio.to_thread(self._bucket.delete, [sign(nonce)])

    async def _watch(self, each: CellProcess) -> None:
        looking = asyncio.create_task(self._look(each), name=f"look-{each.cell:02d}")
        try:
            code = await each.process.wait()
        finally:
            looking.cancel()
        if not each.ready:
            self._watch_over(self._forget(each.nonce), f"forget-{each.cell:02d}")
        cell, now = each.cell, asyncio.get_running_loop().time()
        del self._cells[cell]
        self._offers.pop(cell, None)
        self._bind([cell])
        if (why := _LOST.get(code)) is not None:
            self._counts.lost[why] += 1
        self._counts.given += code == ExitCode.OK and bool(each.given_to)
        if each.stopping or each.given_to or code in _GONE or self._stop.is_set():
            self._waits.pop(cell, None)
            return
        waited_s = backoff_after(self._waits.get(cell, (0.0, 0.0))[0], now - each.began)
        self._waits[cell] = waited_s, now + waited_s
        self._restarts[each.name] = self._restarts.get(each.name, 0) + 1
        _log.error("process_ended", process=each.name, exit_code=code, again_in_s=waited_s)
        if each.ready and code != ExitCode.CANNOT_START and waited_s < EVERY_S and not self._stop.is_set():
            # Here it needs nothing from the bucket but what it has not seen, and nobody has to wait for its silence.
            await asyncio.sleep(waited_s)
            if cell not in self._cells and not self._stop.is_set():
                await self._start_cell(cell)

    def _note_restarts(self) -> None:
        with suppress(OSError):  # it is for information only
            gateways = {child.name: child.restarts for child, _ in self._children}
            write_restarts(Path(self._role.run), {**self._restarts, **gateways})
            write_node_counts(Path(self._role.run), self._counts)

    # -- sockets and addresses -----------------------------------------------------------------------------------------

    def _bind(self, cells: range | list[int]) -> None:
        """Sockets for the clients of these cells, which refuse connections until a process listens. One whose process
        has ended is replaced by another one at the same port."""
        settings = self._settings
        for cell in cells:
            old = self._ports.get(cell, (None, None))
            ports = [None if each is None else each.getsockname()[1] for each in old]
            for each in old:
                if each is not None:
                    each.close()
            http = kafka = None
            try:
                if settings.cell_ports is not None:
                    wanted = ports[0] or (settings.cell_ports and settings.cell_ports + cell)
                    http = listen(settings.host, wanted, port_from="TOPICS_CELL_PORTS")
                if settings.kafka_port is not None:
                    kafka = listen_for_kafka(settings, ports[1] or (settings.kafka_port and settings.kafka_port + cell))
            except CannotListen as error:
                if cell not in self._ports:
                    raise
                _log.error("cell_port_lost", cell=cell, reason=str(error))
            self._ports[cell] = http, kafka

    def _address(
        self, given: Advertised | None, host: str, bound: socket.socket | None, cell: int = 0
    ) -> Address | None:
        """What others are told. `given`: the address of cell 0."""
        if bound is None:
            return None
        if given is not None:
            return Address(given.host, given.port + cell)
        if host in _WILDCARDS:
            known = self._settings.cluster_advertised
            host = self._me if known is None else known.host
        return Address(host, bound.getsockname()[1])
