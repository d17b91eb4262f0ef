"""Unmodified Kafka clients that send values and read them in a group, while leaders and coordinators change.

Each one is idempotent, waits for all acks, and knows nothing of cells. What it was told is acked must be there once,
and its group must read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any, Final

import aiokafka  # pyright: ignore[reportMissingTypeStubs]
import kafka
from confluent_kafka import Consumer, Producer
from kafka.errors import KafkaError

from tests.kafka.java.programs import NEWEST, Programs

#: Between two values.
PAUSE_S: Final = 0.05
#: How long a client may take to send or read one value, whatever happens.
PATIENCE_S: Final = 180.0
GROUP: Final = "followers"
GO: Final = Path(__file__).resolve().parents[1] / "kafka/walks/go"
BUILD_S: Final = 900


@contextlib.contextmanager
def written_to(file: Path, logger: logging.Logger) -> Generator[logging.Logger]:
    """What it logs goes to the file, and to nothing that keeps it: records name connections, with their sockets."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    logger.addHandler(handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        yield logger
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
        handler.close()


class Follower(ABC):
    """A client that sends to a topic and reads it, and logs to its folder. `acked` and `seen` grow while it runs."""

    name = ""
    #: The logger of a library of Python.
    logger = ""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        """`address`: of all brokers. `folder`: for files."""
        self.address, self.topic, self.folder = address, topic, folder
        self.group = f"{GROUP}-{topic}"
        self.acked: list[str] = []
        self.seen: set[str] = set()
        self.problems: list[str] = []
        self._quiet, self._over = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self.send, self.read)]

    @abstractmethod
    def send(self) -> None:
        """Send values, one after the other, until `_quiet`."""

    @abstractmethod
    def read(self) -> None:
        """Read in the group until `_over`."""

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.problems.append(f"{self.name} cannot {work.__name__}: {error!r}")

    def values(self) -> Iterator[str]:
        """What is sent, at a steady pace."""
        number = 0
        while not self._quiet.wait(PAUSE_S):
            yield f"{self.name}-{number}"
            number += 1

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        with contextlib.ExitStack() as stack:
            if self.logger:
                stack.enter_context(written_to(self.folder / "client.log", logging.getLogger(self.logger)))
            for each in self._threads:
                each.start()
            try:
                yield
            finally:
                self._quiet.set()
                self._over.set()
                for each in self._threads:
                    each.join(PATIENCE_S)

    def goes_on(self) -> None:
        """Return when ten more values were acked and read."""
        acked, seen = len(self.acked) + 10, len(self.seen) + 10
        self._until(lambda: len(self.acked) >= acked and len(self.seen) >= seen)

    def has_read_all(self) -> None:
        """Send nothing more. Return when the group has read everything that was acked."""
        self._quiet.set()
        self._threads[0].join(PATIENCE_S)
        self._until(lambda: set(self.acked) <= self.seen)

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, f"{self.name}: {len(self.acked)} acked, {len(self.seen)} read"
            time.sleep(0.05)


class LibrdkafkaFollower(Follower):
    """confluent-kafka. Its logs say what it was told."""

    name = "librdkafka"

    def send(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "enable.idempotence": True,
            "debug": "metadata",
        }

        def told(error: Any, message: Any) -> None:
            if error is None:
                self.acked.append(message.value().decode())
            else:
                self.problems.append(str(error))

        with written_to(self.folder / "producer.log", logging.Logger(self.name)) as logger:
            producer = Producer(settings, logger=logger)
            for value in self.values():
                producer.produce(self.topic, value.encode(), value, on_delivery=told)
                producer.poll(0)
            assert producer.flush(PATIENCE_S) == 0

    def read(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "debug": "broker,cgrp,metadata,topic",
        }
        with written_to(self.folder / "consumer.log", logging.Logger(self.name)) as logger:
            consumer = Consumer(settings, logger=logger)
            consumer.subscribe([self.topic])
            while not self._over.is_set():
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    self.seen.add((message.value() or b"").decode())
            consumer.close()


class KafkaPythonFollower(Follower):
    """kafka-python."""

    name = "kafka-python"
    logger = "kafka"

    def send(self) -> None:
        producer: Any = kafka.KafkaProducer(
            bootstrap_servers=self.address.split(","), acks="all", enable_idempotence=True, max_block_ms=120_000
        )
        for value in self.values():
            producer.send(self.topic, value.encode(), value.encode()).get(PATIENCE_S)
            self.acked.append(value)
        producer.close()

    def read(self) -> None:
        consumer: Any = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.address.split(","),
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )
        while not self._over.is_set():
            try:
                found = consumer.poll(500)
            except KafkaError as error:
                # It leaves it to its user to ask again when a coordinator is away.
                if not error.retriable:
                    raise
                continue
            for records in found.values():
                self.seen.update(each.value.decode() for each in records)
        consumer.close()


class AioFollower(Follower):
    """aiokafka."""

    name = "aiokafka"
    logger = "aiokafka"

    def send(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        producer: Any = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.address, acks="all", enable_idempotence=True, request_timeout_ms=120_000
        )
        await producer.start()
        try:
            values = self.values()
            while (value := await asyncio.to_thread(next, values, None)) is not None:
                await producer.send_and_wait(self.topic, value.encode(), value.encode())
                self.acked.append(value)
        finally:
            await producer.stop()

    def read(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer: Any = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.address,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=1000,
        )
        await consumer.start()
        try:
            while not self._over.is_set():
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    self.seen.update(each.value.decode() for each in records)
        finally:
            await consumer.stop()


class JavaFollower(Follower):
    """Kafka's own clients: the programs with which Kafka's tests check that nothing is lost."""

    name = "java"

    def send(self) -> None:
        settings = self.folder / "producer.properties"
        settings.write_text("retries=2147483647\nenable.idempotence=true\ndelivery.timeout.ms=180000\n")
        # By itself, the program does not try again.
        options = ("--throughput", "20", "--acks", "-1", "--command-config", str(settings))
        for told in self._told("VerifiableProducer", *options, stop=self._quiet):
            if told["name"] == "producer_send_success":
                self.acked.append(told["value"])
            elif told["name"] == "producer_send_error":
                self.problems.append(told["message"])

    def read(self) -> None:
        options = ("--group-id", self.group, "--verbose", "--reset-policy", "earliest", "--session-timeout", "6000")
        for told in self._told("VerifiableConsumer", *options, stop=self._over):
            if told["name"] == "record_data":
                self.seen.add(told["value"])

    def _told(self, program: str, *options: str, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """What the program prints. It is asked to end at `stop`, and says everything before."""
        command = Programs(NEWEST, self.address, self.folder).command(
            f"org.apache.kafka.tools.{program}", "--bootstrap-server", self.address, "--topic", self.topic, *options
        )
        with (
            (self.folder / f"{program}.log").open("w") as log,
            subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None

            def end() -> None:
                stop.wait()
                process.terminate()

            threading.Thread(target=end, daemon=True).start()
            try:
                for line in process.stdout:
                    if line.startswith("{"):
                        yield json.loads(line)
            finally:
                process.kill()
        if not stop.is_set():
            raise AssertionError(f"{program} has ended: {(self.folder / f'{program}.log').read_text()[-2000:]}")


class GoFollower(Follower):
    """A program of `tests/kafka/walks/go`, which is built when it is first needed."""

    def __init__(self, address: str, topic: str, folder: Path) -> None:
        super().__init__(address, topic, folder)
        self._program = folder / "follower"
        subprocess.run(
            ["go", "build", "-o", str(self._program), f"./{self.name}_follower"],
            cwd=GO,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
            stdin=subprocess.DEVNULL,
            timeout=BUILD_S,
            check=True,
        )

    def send(self) -> None:
        with self._run("send") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for value in self.values():
                process.stdin.write(f"{value}\n")
                process.stdin.flush()
                assert process.stdout.readline() == f"{value}\n", self._log("send").read_text()[-2000:]
                self.acked.append(value)

    def read(self) -> None:
        with self._run("read") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            threading.Thread(target=self._end, args=(process.stdin,), daemon=True).start()
            for line in process.stdout:
                self.seen.add(line.rstrip("\n"))
        if not self._over.is_set():
            raise AssertionError(f"{self.name} has ended: {self._log('read').read_text()[-2000:]}")

    def _end(self, its_input: IO[str]) -> None:
        self._over.wait()
        its_input.close()

    def _log(self, work: str) -> Path:
        return self.folder / f"{work}.log"

    @contextlib.contextmanager
    def _run(self, work: str) -> Generator[subprocess.Popen[str]]:
        """The program; it ends when its input does."""
        with (
            self._log(work).open("w") as log,
            subprocess.Popen(
                [str(self._program), work, self.address, self.topic, self.group],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                yield process
            except BaseException:
                process.kill()
                raise


class FranzFollower(GoFollower):
    """franz-go."""

    name = "franz"


class SaramaFollower(GoFollower):
    """sarama."""

    name = "sarama"
