"""Uses a broker with the client that openapi-python-client generates from its document. Run as a separate program:

python use.py URL        with the package `made` on its path
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import made
from made import Client
from made.api.queues import ack_jobs, claim_jobs
from made.api.records import append_records, read_records
from made.api.topics import get_topic, put_topic
from made.models import (
    AckAnswer,
    AckRequest,
    AppendAnswer,
    AppendRecord,
    AppendRequest,
    ClaimAnswer,
    ClaimRequest,
    DiffAnswer,
    DiffRequest,
    ErrorAnswer,
    ErrorCode,
    TopicSettings,
    TopicSettingsTypeType0,
)
from made.types import UNSET


def main(url: str) -> None:
    modules = [each.name for each in pkgutil.walk_packages(made.__path__, "made.")]
    for name in modules:
        importlib.import_module(name)
    broker = Client(base_url=url)
    put_topic.sync("mails", client=broker, body=TopicSettings(type_=TopicSettingsTypeType0.QUEUE))
    appended = append_records.sync(
        "mails", client=broker, body=AppendRequest(records=[AppendRecord(data={"to": "ann"})])
    )
    assert isinstance(appended, AppendAnswer)
    assert appended.partition is UNSET
    read = read_records.sync("mails", client=broker, body=DiffRequest())
    assert isinstance(read, DiffAnswer)
    assert read.records[0].tag is UNSET
    claimed = claim_jobs.sync("mails", client=broker, body=ClaimRequest(node="worker"))
    assert isinstance(claimed, ClaimAnswer)
    [job] = claimed.claimed
    acked = ack_jobs.sync(
        "mails", client=broker, body=AckRequest(node="worker", seqs=[job.seq], lease_ids=[job.lease_id])
    )
    assert isinstance(acked, AckAnswer)
    refused = get_topic.sync("nowhere", client=broker)
    assert isinstance(refused, ErrorAnswer)
    assert refused.error.code is ErrorCode.TOPIC_NOT_FOUND
    print(json.dumps({"modules": len(modules) > 100, "read": len(read.records), "acked": acked.acked}))


main(sys.argv[1])
