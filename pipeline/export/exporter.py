"""Exports topics, each record once for readers of manifests, even if a run is killed at any point.

    step                                 state if the run is killed after it
    1  read the newest manifest          nothing has happened
    2  put the plan of the next one      a later run sees that the process is gone, or that the plan has expired
    3  write hidden files                no manifest names them: nobody reads them, and the collection removes them
    4  check that each exists            as 3
    5  put the manifest if none exists   the files are valid, and `end` is the bookmark: both by this one object
    6  make the files visible            the next run does it (`publication`)
    7  delete the plan                   its manifest exists, so the plan has no meaning

Of two concurrent runs, one puts the manifest. The other removes its files and continues after that manifest. A new
partition of an exported topic is exported from its first seq on.

Source: docs/guides/spark.md#exporting.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline import planning
from pipeline.broker import TopicMissing
from pipeline.errors import (
    DELETED,
    RECREATED,
    RENEWED,
    AnotherExporter,
    BadOption,
    Gap,
    NotDurable,
    PipelineError,
    StoreRefused,
    TopicGone,
    counted,
    log_name,
)
from pipeline.export import names, publication
from pipeline.export.chains import chain_for, resolved
from pipeline.export.manifest import (
    APPEND,
    Bookmark,
    Chain,
    FileEntry,
    LogMark,
    Manifest,
    Plan,
    Resumption,
    bookmark_in,
    decode_plan,
    encode,
    gap_entry,
)
from pipeline.export.part_settings import TABLES
from pipeline.export.store import Store
from pipeline.export.task import Done, Engine, Job, Progress
from pipeline.options import ReadOptions
from pipeline.planning import Range
from pipeline.split_reader import fail_on_gap
from pipeline.splits import splits_of, target_for
from pipeline.view import LogView

#: How long a plan keeps other runs waiting if they cannot see whether its process lives.
PLAN_S = 900
_POLL_S = 0.2
#: How often a run that waits looks whether the manifest is there. That reads the log of a table.
_LOOK_S = 5.0
#: The number of consecutive lost races after which an exporter gives up.
_RACES = 20


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a topic's export. `end` is the first seq that is not exported; for several partitions, it is the
    number of exported seqs of all, plus one."""

    topic: str
    records: int = 0
    bytes: int = 0
    files: int = 0
    end: int = 1
    partitions: int = 1
    manifests: list[int] = field(default_factory=list[int])
    gaps: list[Gap] = field(default_factory=list[Gap])
    warnings: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    lost_races: int = 0
    malformed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much to export. `since_ms`: for a first export; `max_records`: for each manifest."""

    since_ms: int | None = None
    max_records: int | None = None
    min_partitions: int = 1


@dataclass(slots=True, kw_only=True)
class _Next:
    """The content of the next manifest. `carried`: ends of partitions that no longer exist."""

    topic: str
    job: Job
    ranges: list[Range] = field(default_factory=list[Range])
    logs: dict[str, LogMark] = field(default_factory=dict[str, LogMark])
    gaps: list[Gap] = field(default_factory=list[Gap])
    warnings: list[str] = field(default_factory=list[str])
    carried: dict[str, int] = field(default_factory=dict[str, int])


class Exporter:
    """Exports from one origin to one store. `say` prints a message."""

    def __init__(
        self,
        origin: planning.Catalogue,
        store: Store,
        engine: Engine,
        job: Job,
        limits: Limits,
        *,
        version: str,
        pid: int | None = None,
        say: Callable[[str], None] = lambda _: None,
        progress: Callable[[str, Progress], None] = lambda _topic, _progress: None,
    ) -> None:
        self._origin = origin
        self._store = store
        self._engine = engine
        self._job = job
        self._limits = limits
        self._version = version
        self._say = say
        self._progress = progress
        #: The process that other runs check to see whether this run has ended.
        self._pid = os.getpid() if pid is None else pid
        self.run_id = uuid.uuid4().hex

    def todo(self, topic: str) -> int:
        """The number of seqs that an export of the topic would read now."""
        job = resolved(self._store, topic, self._job)
        chain = chain_for(self._store, topic, job)
        return sum(each.end - each.start for each in self._next(chain, chain.newest(), job, announce=False).ranges)

    def export(self, topic: str) -> Outcome:
        """Export all that is durable now (or `max_records`). Raises PipelineError; earlier exports stay valid."""
        began = time.monotonic()
        outcome = Outcome(topic=topic)
        job = resolved(self._store, topic, self._job)
        chain = chain_for(self._store, topic, job)
        while True:
            publication.finish(chain)
            last = chain.newest()
            _check_columns(topic, last, job)
            try:
                found = self._next(chain, last, job)
            except TopicMissing:
                found = _Next(topic=topic, job=job) if last is None else self._ended(topic, last, job)
                if not found.gaps:
                    raise
            outcome.partitions = len(found.ranges)
            outcome.end = _reached(each.start for each in found.ranges)
            outcome.warnings = found.warnings
            if all(each.start >= each.end for each in found.ranges) and not found.gaps:
                break
            plan = self._claim(chain, (last.number if last else 0) + 1, found)
            if plan is None:
                continue
            try:
                manifest = self._step(chain, plan, found, last)
            except BaseException:
                self._release(plan)
                raise
            if manifest is not None:
                self._count(outcome, manifest, found.gaps)
                break
            outcome.lost_races += 1
            if outcome.lost_races >= _RACES:
                raise AnotherExporter(f"{topic}: other exporters were faster {_RACES} times. Run only one at a time.")
        outcome.seconds = time.monotonic() - began
        return outcome

    def _count(self, outcome: Outcome, manifest: Manifest, gaps: list[Gap]) -> None:
        outcome.end = _reached(manifest.end.values())
        outcome.manifests.append(manifest.number)
        outcome.files += len(manifest.added)
        outcome.records += sum(each.rows for each in manifest.added)
        outcome.bytes += sum(each.bytes for each in manifest.added)
        outcome.gaps += gaps
        outcome.malformed += manifest.malformed

    # -- where to begin ----------------------------------------------------------------------------------------------

    def _next(self, chain: Chain, last: Manifest | None, job: Job, *, announce: bool = True) -> _Next:
        """The content of the next manifest, and the losses in it. Raises DataLoss if these are errors."""
        topic = chain.topic
        count = self._origin.partitions(topic)
        known = chain.bookmarks(last, count)
        found = _Next(topic=topic, job=job)
        for partition in range(count):
            self._start(found, known.get(partition), last, self._origin.view(topic, partition))
        for partition in sorted(known):
            if partition >= count:
                _gone(found, partition, known[partition], count)
        if announce:
            self._look_at_memory(found)
        if self._limits.max_records is not None:
            waiting = {number: each.end - each.start for number, each in enumerate(found.ranges)}
            given = planning.shares(waiting, self._limits.max_records)
            found.ranges = [replace(each, end=each.start + given[at]) for at, each in enumerate(found.ranges)]
        if announce:
            for each in found.ranges:
                found.gaps += planning.gaps_of(self._origin, each)
            for gap in found.gaps if self._job.fail_on_loss else ():
                fail_on_gap(gap)
        return found

    def _look_at_memory(self, found: _Next) -> None:
        """Records that are not durable yet are in the next export, but not those of an ephemeral topic."""
        count = sum(each.view.head_seq - each.view.durable_seq for each in found.ranges)
        if count and self._origin.is_ephemeral(found.topic):
            error = NotDurable(found.topic, count)
            if self._job.fail_on_loss:
                raise error
            found.warnings.append(str(error))

    def _ended(self, topic: str, last: Manifest, job: Job) -> _Next:
        """The content of the last manifest of a topic that was deleted: the loss. None if that was put before.

        Raises TopicGone if losses are errors.
        """
        found = _Next(topic=topic, job=job)
        for key, end in last.end.items():
            known = bookmark_in(last, int(key))
            if known is None or known.mark is None:
                continue  # reported before
            found.gaps.append(Gap(topic, int(key), end, end, DELETED, _unread(last, int(key), end)))
            found.carried[key] = 1
        if found.gaps and self._job.fail_on_loss:
            raise TopicGone(topic, found.gaps)
        return found

    def _start(self, found: _Next, known: Bookmark | None, before: Manifest | None, view: LogView) -> None:
        """Set where a partition continues. `before` None: nothing of its topic is exported yet."""
        topic, mark = found.topic, known.mark if known is not None else None
        if known is None:
            # In a partition that was added, records that are gone before their export are a loss. A new topic begins
            # with its existing records.
            start = self._first(topic, view) if before is None else 1
        elif (resumption := known.resumption(view)).reason:
            start = resumption.start
            found.gaps.append(_loss_of(topic, resumption, view, before))
        elif known.end > view.head_seq + 1:
            raise PipelineError(
                f"{log_name(topic, view.partition)}: it is exported up to seq {known.end - 1}, but its last seq is "
                f"{view.head_seq}. This cannot be the same topic: check --to and --url."
            )
        else:
            start = known.end
        found.ranges.append(Range(topic=topic, view=view, start=start, end=max(start, view.end)))
        if view.topic_id:
            same = mark is not None and (mark.topic_id, mark.epoch) == (view.topic_id, view.epoch)
            first = mark.first if mark is not None and same else start
            found.logs[str(view.partition)] = LogMark(
                topic_id=view.topic_id, epoch=view.epoch, first=first, cluster_id=view.cluster_id
            )
        elif mark is not None:
            found.logs[str(view.partition)] = mark

    def _first(self, topic: str, view: LogView) -> int:
        if self._limits.since_ms is None:
            return planning.earliest(view)
        return planning.seq_at(self._origin, topic, view, self._limits.since_ms)

    # -- one manifest ------------------------------------------------------------------------------------------------

    def _claim(self, chain: Chain, number: int, found: _Next) -> Plan | None:
        """Put the plan of the next manifest. None: another run works on it, or did: read the chain again."""
        key = names.plan(found.topic, number)
        plan = Plan(
            number=number,
            topic=found.topic,
            run=self.run_id,
            start={str(each.view.partition): each.start for each in found.ranges},
            end={str(each.view.partition): each.end for each in found.ranges},
            expires_ms=_now_ms() + PLAN_S * 1000,
            host=this_host(),
            pid=self._pid,
        )
        if self._store.create(key, encode(plan)):
            return plan
        there = decode_plan(self._store.read(key) or b"")
        if there is None or is_over(there, _now_ms()):
            self._store.replace(key, encode(plan))
            self._say(f"{found.topic}: taking over manifest {number} from a run that was killed.")
            return plan
        self._say(f"{found.topic}: another exporter (run {there.run[:8]}) works on manifest {number}: waiting.")
        self._wait(chain, number, there.run)
        return None

    def _wait(self, chain: Chain, number: int, run: str) -> None:
        """Wait until another run has put a manifest, has failed, or was killed."""
        looked = time.monotonic()
        while True:
            there = decode_plan(self._store.read(names.plan(chain.topic, number)) or b"")
            if there is None or there.run != run:
                return self._say(f"{chain.topic}: the other exporter has ended its work on manifest {number}.")
            if is_over(there, _now_ms()):
                return None
            if time.monotonic() - looked >= _LOOK_S:  # the run may have been killed after it had put the manifest
                looked, last = time.monotonic(), chain.newest()
                if last is not None and last.number >= number:
                    return self._say(f"{chain.topic}: the other exporter has put manifest {number}.")
            time.sleep(_POLL_S)

    def _release(self, plan: Plan) -> None:
        """Mark a plan as ended after an error, because this process may continue to live."""
        key = names.plan(plan.topic, plan.number)
        with contextlib.suppress(PipelineError):
            there = decode_plan(self._store.read(key) or b"")
            if there is not None and there.run == self.run_id:
                self._store.delete(key)

    def _step(self, chain: Chain, plan: Plan, found: _Next, last: Manifest | None) -> Manifest | None:
        """Write files and manifest. None: another run put the manifest first."""
        dones = self._write(plan, found)
        files = [entry for done in dones for entry in done.files]
        for done in dones:
            found.gaps += done.gaps
        self._look(found.topic, files)
        first: LogView | Manifest | None = found.ranges[0].view if found.ranges else last
        assert first is not None
        manifest = Manifest(
            number=plan.number,
            prev=plan.number - 1,
            kind=APPEND,
            topic=found.topic,
            cluster_id=first.cluster_id,
            topic_id=first.topic_id,
            epoch=first.epoch,
            run=self.run_id,
            end={str(each.view.partition): each.end for each in found.ranges} | found.carried,
            logs=found.logs,
            added=sorted(files, key=lambda entry: (entry.partition, entry.min_seq)),
            gaps=[gap_entry(gap) for gap in found.gaps],
            durable={str(each.view.partition): each.view.durable_seq for each in found.ranges},
            values=_columns_of(found.job),
            malformed=sum(done.malformed for done in dones),
            format=found.job.parts.kind,
            version=self._version,
            created_ms=_now_ms(),
        )
        if publication.commit(chain, manifest):
            self._store.delete(names.plan(found.topic, plan.number))
            return manifest
        self._say(f"{found.topic}: another exporter has put manifest {plan.number}: continuing after it.")
        return None

    def _write(self, plan: Plan, found: _Next) -> list[Done]:
        ranges = [(each.view, each.start, each.end) for each in found.ranges if each.start < each.end]
        target = target_for(ranges, self._limits.min_partitions)
        splits = [split for each in ranges for split in splits_of(found.topic, *each, target_bytes=target)]
        renewed = time.monotonic()

        def progress(step: Progress) -> None:
            nonlocal renewed
            if time.monotonic() - renewed > PLAN_S / 3:
                renewed = time.monotonic()
                later = _now_ms() + PLAN_S * 1000
                self._store.replace(names.plan(found.topic, plan.number), encode(_expiring(plan, later)))
            self._progress(found.topic, step)

        return self._engine.run(splits, found.job, progress) if splits else []

    def _look(self, topic: str, files: Iterable[FileEntry]) -> None:
        for entry in files:
            size = self._store.size(names.staged(topic, entry.file))
            if size is None:
                raise StoreRefused(
                    f"{entry.file} was written, but is not there: --to must be the same directory on every machine "
                    "that runs tasks, or a bucket."
                )
            if size != entry.bytes:
                raise StoreRefused(f"{entry.file} has {size} bytes, but {entry.bytes} were written.")


def _columns_of(job: Job) -> str:
    """The typed columns of a job, as manifests have them."""
    return "" if job.values is None else job.values.ddl()


def _check_columns(topic: str, last: Manifest | None, job: Job) -> None:
    """Raises BadOption if plain files are already exported with other typed columns: their readers expect one schema.

    The columns of a table can change: see `TableChain.fit`.
    """
    if last is not None and last.values != _columns_of(job) and job.parts.kind not in TABLES:
        raise BadOption(
            f"{topic}: it is exported with the typed columns {last.values or '(none)'}, and the given --value-schema "
            f"makes {_columns_of(job) or '(none)'}. All files of a topic have the same columns: give the same, or "
            "export to another --to. Columns of tables can be added."
        )


def _expiring(plan: Plan, expires_ms: int) -> Plan:
    import msgspec

    return msgspec.structs.replace(plan, expires_ms=expires_ms)


def _loss_of(topic: str, found: Resumption, view: LogView, before: Manifest | None) -> Gap:
    """What is lost of an exported log that has ended."""
    unread = _unread(before, view.partition, found.lost)
    last = found.lost + max(1, unread) - 1 if found.reason == RENEWED else max(found.lost, view.evict_floor - 1)
    return Gap(topic, view.partition, found.lost, last, found.reason, unread)


def _gone(found: _Next, partition: int, known: Bookmark, count: int) -> None:
    """Handle an exported partition that no longer exists: the topic was created again with fewer partitions."""
    found.carried[str(partition)] = 1
    if known.mark is None:
        return  # reported before
    if not any(gap.ends_log for gap in found.gaps):
        raise PipelineError(
            f"{found.topic}: {counted(partition + 1, 'partition', 'is|are')} exported, but the topic has {count}. This "
            "cannot be the same topic: check --to and --url."
        )
    found.gaps.append(Gap(found.topic, partition, known.end, known.end, RECREATED))


def _unread(before: Manifest | None, partition: int, end: int) -> int:
    """The durable records that the last run saw, and did not export."""
    return 0 if before is None else max(0, before.durable.get(str(partition), 0) + 1 - end)


def _reached(ends: Iterable[int]) -> int:
    return 1 + sum(end - 1 for end in ends)


def this_host() -> str:
    """Identifies this boot of this machine, to which a pid belongs."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def is_over(plan: Plan, now_ms: int) -> bool:
    """Whether the run of a plan has ended: the plan has expired, or its process on this machine is gone."""
    if plan.expires_ms <= now_ms:
        return True
    return plan.host == this_host() and not _is_running(plan.pid)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return stat.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def options_of(job: Job) -> ReadOptions:
    """The options for reading the same origin."""
    return replace(ReadOptions(), url=job.url, token=job.token, path=job.path, fail_on_loss=job.fail_on_loss)


__all__ = ["Exporter", "Limits", "Outcome", "is_over", "options_of", "this_host"]
