"""Segments, for reading a topic in bulk.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from schemas.fields import AnswerModel
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE


class Loss(AnswerModel):
    """A range of seqs that are lost within the log, both ends inclusive."""

    first: int = Field(alias="from")
    last: int = Field(alias="to")
    cause: Literal["crash", "salvage", "source_trim"]


class Segment(AnswerModel):
    first_seq: int
    end_seq: int = Field(description="Exclusive.")
    records: int = Field(description="Records that are not deleted.")
    live: int = Field(description="Of these, the records that are not evicted by a cap or ttl.")
    bytes: int = Field(description="Size of the data file.")
    first_ts: int
    last_ts: int
    sealed: bool = Field(description="Only files of sealed segments can be downloaded.")
    tier: Literal["hot", "cold"]
    generation: int = Field(description="It changes when the files are rewritten.")
    format: int = Field(description="The format version of the files.")


class Tail(AnswerModel):
    """Seqs that are not in a segment yet."""

    first_seq: int
    end_seq: int = Field(description="Exclusive.")


class Renewal(AnswerModel):
    """A recovery has cut off the end of the log, and given it a new epoch."""

    epoch: int
    head_seq: int = Field(description="The head then. Higher seqs may have been of other records before.")


class SegmentsAnswer(AnswerModel):
    cluster_id: str
    topic_id: int
    epoch: int
    earliest_seq: int
    evict_floor: int
    head_seq: int
    durable_seq: int = Field(description="Records up to this seq survive a crash.")
    loss: list[Loss]
    segments: list[Segment]
    tail: Tail
    renewals: list[Renewal]
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "cluster_id": "5f0c9e1d2b7a4c3e8d6f1a2b3c4d5e6f",
                    "topic_id": 1,
                    "epoch": 1,
                    "earliest_seq": 13,
                    "evict_floor": 13,
                    "head_seq": 10_040,
                    "durable_seq": 10_040,
                    "loss": [{"from": 10_021, "to": 10_030, "cause": "crash"}],
                    "segments": [
                        {
                            "first_seq": 1,
                            "end_seq": 10_001,
                            "records": 9_900,
                            "live": 9_888,
                            "bytes": 1_460_000,
                            "first_ts": 1_767_225_600_000,
                            "last_ts": 1_767_225_660_000,
                            "sealed": True,
                            "tier": "hot",
                            "generation": 0,
                            "format": 1,
                        }
                    ],
                    "tail": {"first_seq": 10_001, "end_seq": 10_041},
                    "renewals": [],
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )
