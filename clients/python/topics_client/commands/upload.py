"""Appends batches to a topic one after another, and counts what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topics_client.blocking import Client
from topics_client.calls import AppendOptions
from topics_client.commands.lines import Batch
from topics_client.errors import ApiError, Conflict, IdempotencyConflict
from topics_client.values import Appended, NewRecord

_RECORD_FIELD = re.compile(r"records\[(\d+)\]")


@dataclass(slots=True)
class Account:
    """What is stored so far. `repeated`: records that an earlier run had stored. Lines count from 1, 0 = none."""

    records: int = 0
    repeated: int = 0
    batches: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_line: int = 0
    complete: bool = False
    #: Sent but not answered: the outcome of these lines is unknown.
    pending: Batch | None = None

    def add(self, batch: Batch, appended: Appended) -> None:
        """One more batch is stored."""
        self.records += len(batch.records)
        self.repeated += len(batch.records) if appended.deduped else 0
        self.batches += 1
        self.first_seq = self.first_seq or appended.first_seq
        self.last_seq = max(self.last_seq, appended.last_seq)
        self.last_line = batch.numbers[-1]
        self.pending = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Appends batches in order, one at a time: the order of the lines is the order of the records.

    With `key_prefix` each batch has a key made of the prefix and its first line, so that running the same input again
    within the topic's idempotency window stores nothing twice. Other lines with a used key are refused, not skipped.
    """

    client: Client
    topic: str
    account: Account
    key_prefix: str | None = None
    tag: str | None = None
    node: str | None = None
    partition: int | None = None

    def run(self, source: Iterable[Batch], on_batch: Callable[[Batch], None]) -> None:
        """Append everything. Raises the error that ended it early; the account then says what is stored."""
        for batch in source:
            self.account.pending = batch
            try:
                appended = self._append(batch)
            except ApiError as error:
                if error.outcome == "none":
                    self.account.pending = None
                raise self._explained(error, batch) from error
            self.account.add(batch, appended)
            on_batch(batch)

    def _append(self, batch: Batch) -> Appended:
        options: AppendOptions = {"node": self.node, "partition": self.partition}
        if self.key_prefix is not None:
            options |= {"idempotency_key": self._key(batch), "idempotency_strict": True}
        records = [NewRecord(data=data, tag=self.tag) for data in batch.records]
        return self.client.append(self.topic, records, **options)

    def _key(self, batch: Batch) -> str:
        return f"{self.key_prefix}:{batch.numbers[0]}"

    def _explained(self, error: ApiError, batch: Batch) -> ApiError:
        """The same error in terms of the input: the broker counts records of a batch, and people count lines."""
        first, last = batch.numbers[0], batch.numbers[-1]
        if isinstance(error, IdempotencyConflict):
            return Conflict(
                f"Lines {first} to {last} cannot be sent with the key {self._key(batch)!r}: it was used for other "
                "records. Give the same input, --batch and --tag as then, or another --key-prefix.",
                code=error.code,
                detail=error.detail,
                status=error.status,
            )
        found = _RECORD_FIELD.match(str(error.detail.get("field", "")))
        if found and int(found[1]) < len(batch.numbers):
            error.message = f"Line {batch.numbers[int(found[1])]}: {error.message}"
        return error
