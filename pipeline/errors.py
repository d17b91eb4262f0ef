"""The errors of the pipeline. `str(error)` says what happened, where, and what to do.

PipelineError
  BadOption            an invalid option, or options that contradict each other; nothing was done
  SourceUnreadable     the broker, directory or store refuses or cannot be reached; a retry may help
  SegmentDamaged       a checksum fails; file and offset are named, and none of the bytes are used
  ValueMalformed       a value does not fit valueSchema, and the mode is failfast
  DataLoss             records in the range are gone; failOnDataLoss=false continues without them
    Recreated          the topic is not the one of the offsets
  TopicGone            an exported topic was deleted at the broker
  NotDurable           records of an ephemeral topic are only in memory
  OtherRows            a retried task has other rows than before, or that cannot be checked
  TopicChanged         a planned segment no longer exists; nothing is lost: plan again
  StoreRefused         the store of the export failed, or cannot provide what exactly-once needs
  AnotherExporter      another run has put the manifest first; files of this run are not valid
  LagsBehind           an export has done its work, and more than --max-lag is not exported
  ManifestDamaged      a manifest cannot be read, or contradicts the previous one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


def log_name(topic: str, partition: int) -> str:
    """The name of a partition in messages."""
    return f"{topic} (partition {partition})" if partition else topic


def counted(count: int, what: str, then: str = "") -> str:
    """`1 file`, `2 files`. `then`: what follows in the singular and the plural, such as `is|are`."""
    one, _, many = then.partition("|")
    rest = f" {one if count == 1 else many}" if then else ""
    return f"{count:,} {what}{'' if count == 1 else 's'}{rest}"


#: Reasons of gaps where a log has ended: the topic was created again, also at a broker that was installed again, or
#: deleted, or a recovery has cut off the end of its log.
RECREATED, REINSTALLED, DELETED, RENEWED = "recreated", "reinstalled", "deleted", "renewed"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


class Gap(NamedTuple):
    """The seqs first <= seq <= last of a partition are gone. Some of them may have been deleted on request.

    `unread`: where the log has ended, the durable records that an earlier run saw and did not export.
    """

    topic: str
    partition: int
    first: int
    last: int
    reason: str
    unread: int = 0

    @property
    def ends_log(self) -> bool:
        """Whether the log has ended. Nobody knows how many records were appended to it since the last run."""
        return self.reason in (RECREATED, REINSTALLED, DELETED, RENEWED)

    @property
    def missed_estimate(self) -> int:
        """The most records that may be lost; where the log has ended, those that are known."""
        return self.unread if self.ends_log else self.last - self.first + 1

    def sentence(self) -> str:
        """The loss as a sentence."""
        log = log_name(self.topic, self.partition)
        known = (
            f" {counted(self.unread, 'record', 'is|are')} known that {_were(self.unread)} not read."
            if self.unread
            else ""
        )
        if self.reason == RECREATED:
            return f"{log}: the topic was deleted and created again; records before seq {self.first} are gone.{known}"
        if self.reason == REINSTALLED:
            return (
                f"{log}: it has another cluster id: the broker was installed again or restored from a backup, this is "
                "another broker, or the topic was created again in another cell. The old topic was read up to seq "
                f"{self.first - 1}.{known}"
            )
        if self.reason == RENEWED:
            return (
                f"{log}: recovery has cut off the end of its log. Records from seq {self.first} on that were not read "
                f"before are gone, and their seqs are assigned to other records.{known}"
            )
        if self.reason == DELETED:
            later = known or " Any later records are lost; nobody knows whether it had some."
            return f"{log}: the topic was deleted; it was read up to seq {self.first - 1}.{later}"
        return f"{log}: seqs {self.first} to {self.last} are lost (reason: {self.reason})."

    def advice(self) -> str:
        """How to continue, as a sentence. A stream with a checkpoint does not look at startingOffsets."""
        if self.reason == DELETED:
            return "Continue without it: failOnDataLoss=false, or leave the topic out."
        if self.reason == RENEWED:
            return "Continue with the records that were appended since: --allow-data-loss."
        if self.ends_log:
            return (
                "Continue with the first record that is there now: failOnDataLoss=false, another checkpoint for a "
                "stream, or --allow-data-loss for an export."
            )
        return (
            "Start after it (startingOffsets), or continue without it: failOnDataLoss=false, or --allow-data-loss for "
            "an export."
        )


class PipelineError(Exception):
    """An error of the pipeline."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark moves errors between processes, and some subclasses take more arguments than a message.
        return PipelineError, (str(self),)


class BadOption(PipelineError):
    """An invalid option."""


class SourceUnreadable(PipelineError):
    """The source cannot be reached, or refuses."""


class SegmentDamaged(PipelineError):
    """A checksum in a segment fails."""

    def __init__(self, file: str, offset: int, what: str, topic: str = "") -> None:
        self.file = file
        self.offset = offset
        of = f" of topic {topic}" if topic else ""
        super().__init__(
            f"segment_corrupt: {file} at offset {offset}{of}: {what}. Nothing after that was read. Check the data "
            "directory with `python -m storage verify DIR`, and restore the file from a backup or the cold tier."
        )


class DataLoss(PipelineError):
    """Records that should be read are gone."""

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        super().__init__(f"{gap.sentence()} {gap.advice()}")


class Recreated(DataLoss):
    """The topic is not the one that the offsets belong to."""


class TopicGone(PipelineError):
    """A topic that was exported was deleted."""

    def __init__(self, topic: str, gaps: Sequence[Gap]) -> None:
        exported = sum(gap.first - 1 for gap in gaps)
        unread = sum(gap.unread for gap in gaps)
        super().__init__(
            f"{topic}: the topic was deleted at the broker. It is exported up to {counted(exported, 'seq')}; "
            f"{counted(unread, 'record', 'is|are')} known that {_were(unread)} not exported, and later ones may be "
            "lost, too. With --allow-data-loss an export records that, and says so once; or leave the topic out of "
            "--topics."
        )


class NotDurable(PipelineError):
    """Records of an ephemeral topic are only in memory. `reads`: for a read; else for an export."""

    def __init__(self, topic: str, count: int, *, reads: bool = False) -> None:
        what, rest = (
            ("A read", "read the rest with failOnDataLoss=false")
            if reads
            else ("An export", "export what it has with --allow-data-loss")
        )
        super().__init__(
            f"{topic}: the topic is ephemeral, and {count:,} of its records {'is' if count == 1 else 'are'} only in "
            f"memory. {what} has only records that a crash cannot remove: give the topic another durability class, or "
            f"{rest}."
        )


class ValueMalformed(PipelineError):
    """A value does not fit the typed columns, and mode failfast refuses that."""


class OtherRows(PipelineError):
    """A retried task has other rows than those that are stored, or that cannot be checked."""


class TopicChanged(PipelineError):
    """A planned segment no longer exists. Planning again helps."""


class StoreRefused(PipelineError):
    """The store failed, or lacks a needed property."""


class AnotherExporter(PipelineError):
    """Another run has put the manifest first."""


class LagsBehind(PipelineError):
    """An export has done its work, and a topic is further behind than it may be."""

    def __init__(self, topic: str, lag: int, limit: int) -> None:
        super().__init__(
            f"{topic}: {counted(lag, 'durable seq', 'is|are')} not exported, more than --max-lag {limit}. What was "
            "exported is valid; the next run continues. Export more often, or more in each run (--max-records)."
        )


class ManifestDamaged(PipelineError):
    """A manifest is invalid."""


#: What the full names of these classes begin with. An installed broker has this package below another one.
_OURS = PipelineError.__module__.removesuffix("errors")


def error_in(traceback: str) -> PipelineError | None:
    """The error that a traceback of another process ends with. None: it is not one of ours."""
    lines = [line for line in traceback.splitlines() if line.startswith(_OURS)]
    if not lines:
        return None
    kind, _, text = lines[-1].partition(": ")
    found = next((each for each in _kinds_of(PipelineError) if kind.endswith(f".{each.__name__}")), SourceUnreadable)
    made = found.__new__(found)
    Exception.__init__(made, text)
    return made


def _kinds_of(kind: type[PipelineError]) -> Iterator[type[PipelineError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of(each)
