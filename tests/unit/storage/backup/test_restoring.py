"""Restores: every byte is checked, the target is a new directory, and the result is never taken for the original."""

from __future__ import annotations

import random
from random import Random

import pytest

from storage import Durability, ReadQuery, TopicConfig, TopicType
from storage.backup.errors import BackupDamaged, BackupRefused
from storage.errors import AlreadyLocked, OpenError
from storage.records.values import TagMatch
from tests.unit.storage.backup.conftest import BACKUPS, TARGET, Rig, differences
from tests.unit.storage.machine import record, seqs


async def test_each_restore_has_new_epochs_and_a_new_cluster_id(rig: Rig) -> None:
    for name in "abc":
        await rig.fill(name, 3)
    await rig.back_up()
    epochs = [{state.topic: state.epoch for state in rig.engine.topics()}]
    clusters = [rig.engine.cluster_id]
    for number in range(2):
        await rig.clock.advance(10)
        restored = rig.restore(f"/restored/{number}")
        engine = await rig.opened(f"/restored/{number}")
        assert engine.cluster_id == restored.cluster_id
        clusters.append(engine.cluster_id)
        await engine.put_topic("new")
        epochs.append({state.topic: state.epoch for state in engine.topics()})
        await engine.close()
    assert len(set(clusters)) == 3
    every = [epoch for each in epochs for epoch in each.values()]
    assert len(set(every)) == len(every) == 3 + 4 + 4


async def test_a_read_with_an_original_epoch_gets_a_recreated_tombstone(rig: Rig) -> None:
    await rig.fill("t", 3)
    epoch = rig.engine.state("t").epoch
    await rig.back_up()
    rig.restore()
    engine = await rig.opened()
    answer = await engine.read("t", ReadQuery(from_seq=2, epoch=epoch))
    assert answer.tombstone is not None
    assert (answer.tombstone.reason, [each.seq for each in answer.records]) == ("recreated", [1, 2, 3])


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.FSYNC, Durability.MEMORY])
async def test_restored_topics_continue_their_seqs_without_a_tombstone(rig: Rig, durability: Durability) -> None:
    await rig.engine.put_topic("t", TopicConfig(durability=durability))
    for _ in range(3):
        await rig.engine.append("t", [record(0)])
    await rig.back_up()
    rig.restore()
    engine = await rig.opened()
    assert (await engine.append("t", [record(1)])).first_seq == 4
    answer = await engine.read("t", ReadQuery())
    assert (answer.tombstone, [each.seq for each in answer.records]) == (None, [1, 2, 3, 4])


async def test_idempotency_keys_hold_over_a_restore(rig: Rig) -> None:
    await rig.engine.append("t", [record(1)], idempotency_key="k")
    await rig.back_up()
    rig.restore()
    engine = await rig.opened()
    again = await engine.append("t", [record(1)], idempotency_key="k")
    assert (again.deduped, again.first_seq) == (True, 1)


async def test_restored_queues_omit_acked_jobs_and_keep_only_durable_leases(rig: Rig) -> None:
    for name, durable in (("durable", True), ("volatile", False)):
        config = TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC, leases_durable=durable, lease_ms=60_000)
        await rig.engine.put_topic(name, config)
        await rig.engine.append(name, [record(each) for each in range(4)])
        claimed = await rig.engine.queues.claim(name, "w", max=3)
        assert len(claimed.jobs) == 3
        await rig.engine.queues.ack(name, "w", [1])
    await rig.back_up()
    rig.restore()
    engine = await rig.opened()
    figures = {name: engine.state(name).queue for name in ("durable", "volatile")}
    durable, volatile = figures["durable"], figures["volatile"]
    assert durable is not None
    assert volatile is not None
    assert (durable.ready, durable.in_flight) == (1, 2)
    assert (volatile.ready, volatile.in_flight) == (3, 0)
    assert await seqs(engine, "durable") == [2, 3, 4]


async def test_a_backup_with_a_damaged_byte_is_refused_and_the_file_named(rig: Rig) -> None:
    await rig.fill("t", 35, tag="x")
    await rig.mark_flushed()
    await rig.engine.delete_records("t", match=TagMatch(b"x"), before_seq=3)
    await rig.fill("u", 4)
    await rig.back_up()
    rng = Random(random.getrandbits(32))
    await rig.close()
    whole = rig.disk
    for path, data in rig.files().items():
        if path.endswith(".lock"):
            continue
        for _ in range(8):
            rig.disk = whole.process_kill()
            offset = rng.randrange(len(data))
            rig.disk.flip_byte(path, offset)
            with pytest.raises((BackupDamaged, BackupRefused), match=path):
                rig.restore()
            assert not rig.disk.exists(TARGET) or rig.disk.listdir(TARGET) == [], (path, offset)
    rig.disk = whole.process_kill()
    rig.restore()


async def test_a_missing_backup_file_is_named(rig: Rig) -> None:
    await rig.fill("t", 35)
    await rig.mark_flushed()
    await rig.back_up()
    await rig.close()
    whole = rig.disk
    for path in rig.files():
        if "/segments/" in path or "/state-" in path:
            rig.disk = whole.process_kill()
            rig.disk.remove_file(path)
            with pytest.raises(BackupDamaged, match=path):
                rig.restore()


async def test_a_damaged_newest_backup_names_the_previous_backup_which_can_be_restored(rig: Rig) -> None:
    await rig.fill("t", 5)
    there = await rig.seen()
    await rig.back_up()
    await rig.fill("t", 5)
    await rig.back_up()
    rig.disk.flip_byte(f"{BACKUPS}/manifest-0000000000000002.json", 40)
    with pytest.raises(BackupDamaged, match="the backup before it is number 1"):
        rig.restore()
    assert differences(there, await rig.found(number=1)) == []
    third = await rig.back_up()
    assert third.number == 3
    rig.restore("/restored/again")


async def test_a_directory_that_is_not_empty_is_refused_and_not_changed(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    rig.disk.mkdir("/desk")
    rig.disk.mkdir("/desk/letters")
    before = rig.disk.tree()
    for target in ("/desk", BACKUPS, f"{BACKUPS}/here", "/"):
        with pytest.raises(BackupRefused):
            rig.restore(target)
        assert rig.disk.tree() == before


async def test_the_root_of_a_new_file_system_is_a_valid_target(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    rig.disk.mkdir("/volume")
    rig.disk.mkdir("/volume/lost+found")
    rig.restore("/volume")
    engine = await rig.opened("/volume")
    assert engine.state("t").count == 25


async def test_a_restore_of_an_absent_backup_is_refused(rig: Rig) -> None:
    with pytest.raises(BackupRefused, match="holds no backups"):
        rig.restore()
    await rig.fill()
    rig.disk.fail("rename", f"{BACKUPS}/manifest*")
    with pytest.raises(Exception, match="could not be finished"):
        await rig.back_up()
    with pytest.raises(BackupRefused, match="no finished backup; there: none"):
        rig.restore()
    await rig.back_up()
    with pytest.raises(BackupRefused, match="no finished backup 7; there: 1"):
        rig.restore(number=7)


async def test_a_start_on_an_unfinished_restore_is_refused(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    rig.restore()
    rig.disk.open(f"{TARGET}/RESTORING", create=True).close()
    with pytest.raises(OpenError, match="was not completed"):
        await rig.opened()
    with pytest.raises(BackupRefused, match="empty the directory, and run the command again"):
        rig.restore()


async def test_an_error_leaves_the_directory_empty(rig: Rig) -> None:
    await rig.fill("t", 35)
    await rig.mark_flushed()
    await rig.back_up()
    rig.disk.fail("sync", f"{TARGET}/topics/*", nth=2)
    with pytest.raises(OSError, match="error"):
        rig.restore()
    assert rig.disk.listdir(TARGET) == []
    rig.restore()


async def test_a_directory_opened_by_an_engine_is_refused(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    rig.disk.mkdir("/restored")
    rig.disk.mkdir(TARGET)
    lock = rig.disk.lock(f"{TARGET}/.lock")
    with pytest.raises((AlreadyLocked, BackupRefused)):
        rig.restore()
    lock.release()
