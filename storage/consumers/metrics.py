"""What the engine counts about consumers. See `storage.metrics`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from storage.consumers.unread import unread
from storage.metrics import MAX_TOPIC_SERIES, Family, HistogramSample, Sample

if TYPE_CHECKING:
    from storage.catalog import Topic
    from storage.consumers.consumer import Consumer
    from storage.engine import Engine

_FIRST: Final = f"(the first {MAX_TOPIC_SERIES} consumers)."


def collect_consumers(engine: Engine) -> list[Family]:
    """Families about consumers; none before the engine is ready."""
    if not engine.ready:
        return []
    shown: list[tuple[Topic, Consumer]] = list(
        islice(
            ((topic, each) for topic in engine.catalog.named("", "") for each in topic.log.consumers.named()),
            MAX_TOPIC_SERIES,
        )
    )
    labels = [(("topic", topic.name), ("consumer", each.name)) for topic, each in shown]

    def per_consumer(name: str, help: str, values: list[int]) -> Family:
        samples: list[Sample | HistogramSample] = [Sample(*each) for each in zip(labels, values, strict=True)]
        return Family(name, "gauge", f"{help} {_FIRST}", samples)

    return [
        _whole("topics_consumers", "gauge", "Consumers there are.", engine.catalog.usage.consumers),
        per_consumer(
            "topics_consumer_lag", "Seqs behind the cursor", [topic.log.head - each.cursor_seq for topic, each in shown]
        ),
        per_consumer(
            "topics_consumer_unread",
            "Live records behind the cursor",
            [unread(topic.log, each.cursor_seq) for topic, each in shown],
        ),
        per_consumer(
            "topics_consumer_unpersisted",
            "Records handed out that a crash has handed out again",
            [each.unpersisted for _, each in shown],
        ),
        *_totals(engine),
    ]


def _whole(name: str, kind: str, help: str, value: int) -> Family:
    return Family(name, kind, help, [Sample((), value)])


def _totals(engine: Engine) -> list[Family]:
    counters, attempts = engine.consumers.counters, engine.consumers.attempts
    return [
        _whole("topics_consumer_cursors_persisted", "counter", "Cursor frames made durable.", counters.persisted),
        _whole(
            "topics_consumer_persist_failures",
            "counter",
            "Cursor frames that could not be written.",
            counters.failed,
        ),
        _whole(
            "topics_consumer_read_waits",
            "counter",
            "Times that an answer waited for a cursor to be durable.",
            counters.waits,
        ),
        _whole("topics_consumer_answers", "gauge", "Answers kept for a repeat.", len(attempts)),
        _whole("topics_consumer_answers_bytes", "gauge", "Bytes of answers kept for a repeat.", attempts.bytes),
        _whole("topics_consumer_answers_repeated", "counter", "Answers given again.", attempts.repeated),
        _whole(
            "topics_consumer_answers_forgotten",
            "counter",
            "Answers forgotten before their time, for want of room.",
            attempts.forgotten,
        ),
    ]
