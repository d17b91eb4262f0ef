"""Tags of the tail: found exactly, in any mixture of batches, and dropped from the front."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from kernel import Tags
from storage.records.values import TagMatch
from storage.state.tail_tags import TailTags

TAG = st.text(alphabet="abä", min_size=1, max_size=4).map(str.encode)
BATCHES = st.lists(st.lists(TAG, max_size=700), max_size=8)


@given(BATCHES, TAG, st.booleans(), st.integers(0, 3000), st.integers(0, 3000), st.sets(st.integers(0, 7)))
def test_a_tag_search_of_the_tail_equals_a_full_scan(
    batches: list[list[bytes]], text: bytes, prefix: bool, last_seq: int, floor: int, replayed: set[int]
) -> None:
    tags = TailTags()
    every: list[tuple[bytes, int]] = []
    for number, batch in enumerate(batches):
        tagged = [(tag, seq) for seq, tag in enumerate(batch, len(every) + 1)]
        if number in replayed:
            seqs, lens = array("Q", [seq for _, seq in tagged]), array("H", map(len, batch))
            tags.extend(Tags(seqs, lens, b"".join(batch)))
        else:
            tags.add(tagged)
        every += tagged
    assert len(tags) == len(every)
    match = TagMatch(text, prefix)
    wanted = [seq for tag, seq in every if match.matches(tag) and seq <= last_seq]
    assert tags.find(match, last_seq) == wanted
    tags.forget_below(floor)
    assert [seq for seq in tags.find(match, last_seq) if seq >= floor] == [seq for seq in wanted if seq >= floor]


def test_forgotten_tags_free_memory() -> None:
    tags = TailTags()
    for seq in range(1, 10_001):
        tags.add([(b"t%d" % seq, seq)])
    assert len(tags) == 10_000
    tags.forget_below(9_000)
    assert 1001 <= len(tags) <= 1001 + 1024
    tags.forget_below(10_001)
    assert len(tags) == 0
