"""Uses a broker with the Python client that OpenAPI Generator generates from its document. Run as a separate program:

python use_openapi_generator.py URL        with the package `made` on its path
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import made
from made import ApiClient, ApiException, AppendRecord, AppendRequest, Configuration, DiffRequest, TopicSettings
from made.api.records_api import RecordsApi
from made.api.topics_api import TopicsApi


def main(url: str) -> None:
    modules = [each.name for each in pkgutil.walk_packages(made.__path__, "made.")]
    for name in modules:
        importlib.import_module(name)
    with ApiClient(Configuration(host=url)) as client:
        topics, records = TopicsApi(client), RecordsApi(client)
        topics.put_topic("t", TopicSettings(durability="fsync"))
        request = AppendRequest(records=[AppendRecord(data={"n": 1}), AppendRecord(data=2, tag="x")])
        appended = records.append_records("t", append_request=request)
        found = records.read_records("t", diff_request=DiffRequest(from_seq=0))
        try:
            topics.get_topic("absent")
            code = ""
        except ApiException as error:
            code = json.loads(error.body)["error"]["code"]
    told = {"modules": len(modules) > 100, "last": appended.last_seq, "read": len(found.records), "code": code}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
