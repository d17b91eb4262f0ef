"""storage.format.control: the maps of control frames."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format import control
from storage.format.control import CONTROL, UnknownFrameType, decode_control, encode_control
from storage.format.wal_frame import FrameType
from tests.golden.make_golden import FRAMES
from tests.support.spec_control import CONTROL_FIELDS
from tests.support.spec_control import decode_control as decode_by_the_specification

u64 = st.integers(0, (1 << 64) - 1)
seq = st.integers(1, (1 << 64) - 1)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,20}", fullmatch=True)
configs = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["log", "queue"]),
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
    },
    optional={"ttl_ms": u64, "dead_letter": st.none() | names},
)
topics = {
    "name": names,
    "topic": seq,
    "partition": st.integers(0, 1023),
    "partitions": st.integers(1, 1024),
    "epoch": seq,
    "config": configs,
    "paused": st.none() | st.booleans(),
}
causes = st.sampled_from(["cap", "ttl", "delete", "consumed", "crash", "source_trim", "salvage"])
losses = st.tuples(seq, st.just((1 << 64) - 1), st.sampled_from(["crash", "source_trim", "salvage"]))
matches = st.builds(lambda text: ["tag", "Eq", text], names) | st.builds(
    lambda text: ["tag", "Glob", f"{text}*"], names
)

controls = st.one_of(
    st.builds(control.TopicCreate, **topics),
    st.builds(control.ConfigUpdate, **topics),
    st.builds(control.TopicDelete, name=names),
    st.builds(
        control.Delete,
        bound_head=u64,
        before_seq=st.none() | u64,
        match=st.none() | matches,
        seqs=st.none() | st.lists(seq, min_size=1, max_size=5),
        ack=st.none() | st.booleans(),
    ),
    st.builds(
        control.EvictWatermark,
        floors=st.none() | st.dictionaries(causes, seq),
        loss=st.none() | st.lists(losses, max_size=3),
    ),
    st.builds(control.HeadWatermark, reserved=u64),
    st.builds(
        control.Lease,
        event=st.sampled_from(["claimed", "released", "extended", "acked", "expired"]),
        jobs=st.lists(st.tuples(seq, seq, u64, u64, u64, u64), min_size=1, max_size=4),
        attempt_key=st.none() | st.text(min_size=1, max_size=20),
        reason=st.none() | st.text(min_size=1, max_size=20),
    ),
    st.builds(
        control.Lease,
        event=st.just("dead"),
        jobs=st.lists(st.tuples(seq, u64, u64, u64, u64, u64), min_size=1, max_size=4),
        dest_id=seq,
        reason=st.none() | st.text(min_size=1, max_size=20),
    ),
    st.builds(
        control.Batch,
        frames=seq,
        body_bytes=seq,
        first_seq=st.none() | seq,
        key=st.none() | st.text(min_size=1, max_size=20),
        hash=st.none() | st.binary(min_size=16, max_size=16),
        move=st.none() | st.tuples(seq, seq),
        producer=st.none() | st.tuples(u64, st.integers(0, 32_767), st.integers(0, (1 << 31) - 1)),
    ),
    st.builds(
        control.RouterCreate,
        router_id=seq,
        name=names.map(lambda name: name.replace(":", ">")),
        definition=st.dictionaries(names, st.none() | st.booleans() | names | st.lists(names)),
        source_id=seq,
        dest_id=seq,
        source_cursor=u64,
    ),
    st.builds(control.Moved, source_id=seq, seqs=st.lists(seq, min_size=2, max_size=5, unique=True)),
    st.builds(control.RouterDelete, router_id=seq),
    st.builds(control.RouterCursor, router_id=seq, source_seq=u64),
    st.builds(
        control.Consumer,
        consumer_id=seq,
        name=names,
        event=st.sampled_from(["put", "cursor", "delete"]),
        config=st.none() | st.dictionaries(names, st.integers(0, 9) | names),
        seq=st.none() | u64,
    ),
    st.builds(
        control.State,
        kind=st.text(min_size=1, max_size=20),
        key=st.text(min_size=1, max_size=20),
        value=st.none() | st.binary(max_size=20),
    ),
    st.builds(control.SyncPoint, file=seq, at=u64, offset=u64),
    st.builds(control.CheckpointMark, absorbed=st.dictionaries(seq, u64, max_size=5)),
    st.builds(
        control.Segment,
        first_seq=seq,
        end_seq=seq,
        event=st.sampled_from(["opened", "sealed", "tier", "rewritten", "dropped"]),
        gen=u64,
        live=u64,
        data_bytes=u64,
        tier=st.sampled_from(["hot", "cold"]),
        live_bytes=st.none() | u64,
    ),
)


@given(controls)
def test_control_frames_round_trip(value: control.Control) -> None:
    assert decode_control(control.TYPE_OF[type(value)], encode_control(value)) == value


@given(controls)
def test_the_specification_knows_every_written_field(value: control.Control) -> None:
    type_ = control.TYPE_OF[type(value)]
    fields = decode_by_the_specification(int(type_), encode_control(value))
    assert fields == {
        name: given_value
        for name, given_value in msgspec.msgpack.decode(encode_control(value)).items()
        if given_value is not None
    }


def test_every_control_type_is_covered_by_these_strategies() -> None:
    assert set(CONTROL.values()) == {
        control.TopicCreate,
        control.ConfigUpdate,
        control.TopicDelete,
        control.Delete,
        control.EvictWatermark,
        control.HeadWatermark,
        control.Lease,
        control.Batch,
        control.Moved,
        control.RouterCreate,
        control.RouterDelete,
        control.RouterCursor,
        control.Consumer,
        control.State,
        control.SyncPoint,
        control.CheckpointMark,
        control.Segment,
    }


@pytest.mark.parametrize("type_", sorted(CONTROL))
def test_fields_are_named_as_in_the_specification(type_: FrameType) -> None:
    written = {field.encode_name: field.required for field in msgspec.structs.fields(CONTROL[type_])}
    specified = {name.rstrip("?"): not name.endswith("?") for name in CONTROL_FIELDS[type_]}
    assert written == specified


@pytest.mark.parametrize("type_", sorted(CONTROL))
def test_an_unknown_key_is_ignored(type_: FrameType) -> None:
    golden = next(frame.control for frame in FRAMES.values() if frame.type == type_)
    assert golden is not None
    fields = msgspec.msgpack.decode(encode_control(golden))
    newer = msgspec.msgpack.encode({"of_a_newer_version": [1, {"deep": None}], **fields})
    assert decode_control(type_, newer) == golden


@pytest.mark.parametrize("type_", sorted(CONTROL))
def test_a_missing_field_is_refused(type_: FrameType) -> None:
    golden = next(frame.control for frame in FRAMES.values() if frame.type == type_)
    fields = msgspec.msgpack.decode(encode_control(golden))
    required = [field.encode_name for field in msgspec.structs.fields(CONTROL[type_]) if field.required]
    for name in required:
        without = msgspec.msgpack.encode({key: value for key, value in fields.items() if key != name})
        with pytest.raises(msgspec.ValidationError):
            decode_control(type_, without)


@pytest.mark.parametrize("type_", [0, 19, 255])
def test_an_unknown_type_is_reported_as_unknown(type_: int) -> None:
    with pytest.raises(UnknownFrameType):
        decode_control(type_, b"\x80")


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"\x90", b"\x01", b"\xff", b"\x81", b"\x81\xa8reserved", b"not msgpack"]
)
def test_data_other_than_a_single_map_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_control(FrameType.HEAD_WATERMARK, data)


def test_bytes_after_the_map_are_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_control(FrameType.HEAD_WATERMARK, encode_control(control.HeadWatermark(reserved=1)) + b"\xc0")


@pytest.mark.parametrize("value", ["1", 1.5, None, [1], True])
def test_a_value_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_control(FrameType.HEAD_WATERMARK, msgspec.msgpack.encode({"reserved": value}))
