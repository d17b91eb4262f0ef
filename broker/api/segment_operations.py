"""How the routes of segments are described (see `hot_operations`)."""

from __future__ import annotations

from typing import Any

from broker.api.answers import OK, PARTIAL_CONTENT
from broker.api.hot_operations import PARTITION, TOPIC, HotOperation
from broker.api.refusals import refusals
from schemas.segments import SegmentsAnswer

_FIRST_SEQ: dict[str, Any] = {
    "name": "first_seq",
    "in": "path",
    "required": True,
    "description": "As listed.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**64 - 1, "examples": [1]},
}
_HEADERS = ("ETag", "Accept-Ranges", "Content-Range")


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
    }


_CONDITIONS = [
    _header("Range", "One range of bytes; several are answered with the whole."),
    _header("If-Range", "The range counts only for this ETag; for another the whole is sent."),
    _header("If-Match", "Refuse with 412 when none of these ETags is the current one."),
    _header("If-None-Match", "Answer 304, without a body, when one of these ETags is the current one."),
]


def _file(ext: str, summary: str, description: str, example: str) -> HotOperation:
    return HotOperation(
        method="get",
        path=f"/v0/topics/{{topic}}/segments/{{first_seq}}/{ext}",
        name=f"get_segment_{ext}",
        tag="segments",
        summary=summary,
        description=description,
        answer=None,
        headers=_HEADERS,
        example=example,
        parameters=[TOPIC, _FIRST_SEQ, PARTITION, *_CONDITIONS],
        successes={OK: "The file.", PARTIAL_CONTENT: "The range of it."},
        refusals=refusals(
            "invalid_request", "topic_not_found", "not_found", "precondition_failed", "range_not_satisfiable",
            "segment_corrupt", "storage_failed",
        ),
    )  # fmt: skip


SEGMENT_OPERATIONS = [
    HotOperation(
        method="get",
        path="/v0/topics/{topic}/segments",
        name="list_segments",
        tag="segments",
        summary="List what a topic's segments hold",
        description="All of it as of one instant. What lies in tail, or in a segment that is not sealed, is read as "
        "records are.",
        answer=SegmentsAnswer,
        parameters=[TOPIC, PARTITION],
        successes={OK: "The segments."},
        refusals=refusals("invalid_request", "topic_not_found"),
    ),
    _file(
        "data",
        "Fetch the records of a sealed segment",
        "Frames as they are stored. A deleted record's has the delete byte 0xD5, zeros for node, tag and data, and a "
        "checksum that fits them; lengths stay. Readers verify each frame, and drop seqs below earliest_seq. "
        "When detail.reason of a 404 is active, the segment is not sealed yet.",
        "the frames, one behind the other",
    ),
    _file(
        "idx",
        "Fetch the index of a sealed segment",
        "20 bytes a seq: where its frame lies in data; bit 2 of the flags says deleted. The ETag changes with every "
        "deletion.",
        "the entries, one behind the other",
    ),
]
