"""Records of every kind, by Hypothesis, and what the formats' own codecs make of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st

import kernel
from storage.format import wal_frame
from storage.format.binary import binary_body
from storage.format.wal_frame import FrameFlag

U64 = (1 << 64) - 1


class Sample(NamedTuple):
    """A record as a writer gives it. `kind`: JSON or BINARY of `kernel.Body`."""

    data: bytes
    meta: bytes | None = None
    tag: bytes | None = None
    node: bytes | None = None
    deliver_at: int | None = None
    kind: int = kernel.Body.JSON

    @property
    def body(self) -> bytes:
        """What is stored, as docs/reference/format.md says it."""
        if self.kind == kernel.Body.BINARY:
            return binary_body(self.data)
        meta = b"" if self.meta is None else b',"meta":' + self.meta
        due = b"" if self.deliver_at is None else b',"deliver_at":%d' % self.deliver_at
        return b'{"data":' + self.data + meta + due + b"}"


def dumped(value: Any) -> bytes:
    """JSON text without spaces between its tokens."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(texts, st.sampled_from(["data", "meta", "ct", "h", "deliver_at"])), inner, max_size=4
        ),
    ),
    max_leaves=8,
).map(dumped)
#: Long enough for each way of the checksum.
long_values = st.integers(0, 2500).map(lambda size: b'"%b"' % (b"x" * size))
labels = st.one_of(st.none(), texts.map(str.encode))
json_samples = st.builds(
    Sample,
    st.one_of(values, values, values, long_values),
    meta=st.one_of(st.none(), values),
    tag=labels,
    node=labels,
    deliver_at=st.one_of(st.none(), st.integers(0, U64)),
    kind=st.just(int(kernel.Body.JSON)),
)
binary_samples = st.builds(
    Sample,
    st.binary(max_size=300),
    meta=st.none(),
    tag=labels,
    node=labels,
    deliver_at=st.none(),
    kind=st.just(int(kernel.Body.BINARY)),
)
batches = st.lists(st.one_of(json_samples, json_samples, binary_samples), min_size=1, max_size=30)
headers = st.builds(
    kernel.Header,
    topic_id=st.integers(0, U64),
    first_seq=st.integers(1, U64 - 100),
    ts=st.integers(0, U64),
    node=st.sampled_from([b"", b"node-1"]),
    flags=st.sampled_from([0, int(FrameFlag.DURABLE), 3 << 5]),
)


def frames_of(batch: list[Sample], header: kernel.Header, *, more: bool = False, apart: bool = False) -> list[bytes]:
    """The frames, by the codec of the format."""
    frames: list[bytes] = []
    for number, sample in enumerate(batch):
        flags = header.flags | (FrameFlag.BINARY if sample.kind & 1 else 0)
        if not apart and (more or number < len(batch) - 1):
            flags |= FrameFlag.MORE
        seq, node = header.first_seq + number, sample.node or header.node
        labels_ = (node, sample.tag or b"", sample.body)
        frames.append(wal_frame.encode(wal_frame.FrameType.APPEND, flags, header.topic_id, seq, header.ts, *labels_))
    return frames


def encoded(batch: list[Sample], header: kernel.Header, **options: Any) -> tuple[bytes, list[int]]:
    """The frames, by the kernel."""
    frames, sizes = kernel.encode_appends(
        [sample.data for sample in batch],
        [sample.meta for sample in batch],
        [sample.tag for sample in batch],
        header,
        nodes=[sample.node for sample in batch],
        deliver_ats=[sample.deliver_at for sample in batch],
        bodies=bytes([sample.kind for sample in batch]),
        **options,
    )
    return frames, sizes.tolist()


def log_of(batch: list[Sample], header: kernel.Header) -> bytes:
    """The frames of a batch, one behind the other."""
    return b"".join(frames_of(batch, header))
