"""Every error of the pipeline. `str(error)` says what happened, where, and what to do.

PipelineError
  BadOption            an option that is none, or does not fit the others; nothing was done
  SourceUnreadable     the broker, directory or store refused or cannot be reached; trying again may help
  SegmentDamaged       bytes that fail their check: file and offset are named; nothing of them is passed on
  DataLoss             records in the range are gone; failOnDataLoss=false goes on without them
    Recreated          the topic is another one than that of the offsets
  OtherRows            a task that was tried again has other rows than before, or nobody can tell
  TopicChanged         what was planned is no longer there; nothing is lost: plan again
  StoreRefused         the place that files are exported to cannot do what exactly-once needs
  AnotherExporter      somebody else put the manifest first; nothing of ours counts
  ManifestDamaged      a manifest that cannot be read, or contradicts the one before
"""

from __future__ import annotations

from typing import Any, NamedTuple


def log_name(topic: str, partition: int) -> str:
    """How sentences call a partition of a topic."""
    return f"{topic} (partition {partition})" if partition else topic


class Gap(NamedTuple):
    """Seqs first <= seq <= last of a partition are lost, at most: deleted ones may be among them."""

    topic: str
    partition: int
    first: int
    last: int
    reason: str

    @property
    def missed_estimate(self) -> int:
        """An upper bound of the records lost; 0 where nobody can know (the topic was made anew)."""
        return 0 if self.reason == "recreated" else self.last - self.first + 1

    def sentence(self) -> str:
        """For people."""
        log = log_name(self.topic, self.partition)
        if self.reason == "recreated":
            return f"{log}: it was deleted and made again; what it held before seq {self.first} is not there."
        return f"{log}: seqs {self.first} to {self.last} are lost (reason: {self.reason})."


class PipelineError(Exception):
    """Something went wrong in the pipeline."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark moves errors between processes; those below take more than a message.
        return PipelineError, (str(self),)


class BadOption(PipelineError):
    """An option cannot be understood."""


class SourceUnreadable(PipelineError):
    """What is read cannot be reached, or refused."""


class SegmentDamaged(PipelineError):
    """Bytes of a segment fail their check."""

    def __init__(self, file: str, offset: int, what: str, topic: str = "") -> None:
        self.file = file
        self.offset = offset
        of = f" of topic {topic}" if topic else ""
        super().__init__(
            f"segment_corrupt: {file} at offset {offset}{of}: {what}. Nothing from there on was read. Check the data "
            "directory with `python -m storage verify DIR`, and restore the file from a backup or the cold tier."
        )


class DataLoss(PipelineError):
    """Records that were to be read are gone."""

    def __init__(self, gap: Gap) -> None:
        self.gap = gap
        super().__init__(
            f"{gap.sentence()} Start behind it (startingOffsets), or go on without it: failOnDataLoss=false, and of an "
            "export --allow-data-loss."
        )


class Recreated(DataLoss):
    """The topic is not the one that the offsets are of."""


class OtherRows(PipelineError):
    """Of the rows that a task is to append, some cannot be told from those that are stored."""


class TopicChanged(PipelineError):
    """What was planned is no longer so; planning again helps."""


class StoreRefused(PipelineError):
    """The place for the files lacks something that is needed."""


class AnotherExporter(PipelineError):
    """Another run was first."""


class ManifestDamaged(PipelineError):
    """A manifest makes no sense."""
