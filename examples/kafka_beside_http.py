"""One topic, two protocols: a record written by a Kafka client is read over HTTP, and the other way round.

    TOPICS_KAFKA_PORT=9092 make run                  # the broker, in another terminal
    .venv/bin/pip install confluent-kafka
    .venv/bin/python examples/kafka_beside_http.py

Run it again: each side reads on from its last position.
"""

from __future__ import annotations

import os

from confluent_kafka import Consumer, KafkaError, Message, Producer

from topics_client import Client, NewRecord

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
KAFKA = os.environ.get("TOPICS_KAFKA", "127.0.0.1:9092")


def stored(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise SystemExit(f"not stored: {error}")
    # The same record in both protocols: seqs begin with 1, offsets with 0.
    print(f"Kafka stored {message.key()} at offset {message.offset()}")


def kafka_to_http(broker: Client) -> None:
    # Idempotent: a batch sent again because its answer was lost is stored once.
    producer = Producer({"bootstrap.servers": KAFKA, "enable.idempotence": True})
    for item, grams in (("tea", 100), ("jam", 450)):
        # A JSON text as value is `data` over HTTP, and the key is the tag. Other bytes become {"$base64": ...}.
        producer.produce("goods", key=item, value=f'{{"grams":{grams}}}', on_delivery=stored)
    producer.flush()

    # The broker keeps the cursor. An existing cursor stays where it is.
    broker.consumers.put("goods", "http-reader", start="earliest")
    found = broker.consumers.read("goods", "http-reader", checkpoint=False, include_tags=True)
    if found.tombstone is not None:
        print(f"HTTP was told of a loss: seqs {found.tombstone.gap_from} to {found.tombstone.gap_to}")
    for record in found.records:
        print(f"HTTP read seq {record.seq}: {record.tag} {record.data}")
    # Commit when the records are processed: after a crash before this they come again.
    broker.consumers.commit("goods", "http-reader", found.next_from_seq)


def http_to_kafka(broker: Client) -> None:
    broker.append("prices", [NewRecord(data={"cents": 399}, tag="tea"), NewRecord(data={"cents": 249}, tag="jam")])

    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": "kafka-reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["prices"])
    try:
        # A group takes a moment to form; the first poll waits for it.
        for message in consumer.consume(2, timeout=30):
            if error := message.error():
                raise SystemExit(f"not read: {error}")
            print(f"Kafka read offset {message.offset()}: {message.key()} {message.value()}")
    finally:
        # Commits what was read. The commit is durable, and `topics consumers list prices` shows it.
        consumer.close()


def main() -> None:
    with Client(URL) as broker:
        for topic in ("goods", "prices"):
            broker.put_topic(topic, durability="fsync")
        kafka_to_http(broker)
        http_to_kafka(broker)


if __name__ == "__main__":
    main()
