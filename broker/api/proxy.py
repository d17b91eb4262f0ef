"""The operations of the REST Proxy, below its prefix, with its own error format. Clients may send a key as Basic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.api.operation import Handler, Operation, Owner, Refuse
from broker.api.routes import proxy_consumers as consumers
from broker.api.routes import proxy_topics as topics
from broker.api.routes import proxy_v3 as v3
from broker.api.routes import proxy_v3_records as v3_records
from broker.auth import ADMIN, DELETE, READ, READ_WRITE, WRITE, Rule
from broker.proxy import answer_v2, answer_v3

_READS: Final = Rule(READ, basic=True)
_WRITES: Final = Rule(WRITE, basic=True)
_COMMITS: Final = Rule(READ_WRITE, basic=True)
_DELETES: Final = Rule(DELETE, basic=True)
_ADMINS: Final = Rule(ADMIN, basic=True)

_G: Final = "/consumers/{group}"
_I: Final = f"{_G}/instances/{{instance}}"
_T: Final = "/topics/{topic}"
_P: Final = f"{_T}/partitions/{{partition}}"

_V2: Final[tuple[tuple[str, str, Rule, Handler], ...]] = (
    ("GET", "/topics", _READS, topics.list_topics),
    ("GET", _T, _READS, topics.get_topic),
    ("POST", _T, _WRITES, topics.produce_to_topic),
    ("GET", f"{_T}/partitions", _READS, topics.list_partitions),
    ("GET", _P, _READS, topics.get_partition),
    ("POST", _P, _WRITES, topics.produce_to_partition),
    ("GET", f"{_P}/offsets", _READS, topics.get_offsets),
    ("GET", f"{_P}/records", _READS, topics.read_partition),
    ("GET", "/brokers", _READS, topics.list_brokers),
    # An instance that commits automatically needs the write scope, too.
    ("POST", _G, _READS, consumers.create),
    ("DELETE", _I, _READS, consumers.delete),
    ("POST", f"{_I}/subscription", _READS, consumers.subscribe),
    ("GET", f"{_I}/subscription", _READS, consumers.get_subscription),
    ("DELETE", f"{_I}/subscription", _READS, consumers.unsubscribe),
    ("POST", f"{_I}/assignments", _READS, consumers.assign),
    ("GET", f"{_I}/assignments", _READS, consumers.get_assignments),
    ("GET", f"{_I}/records", _READS, consumers.read),
    ("POST", f"{_I}/offsets", _COMMITS, consumers.commit),
    ("GET", f"{_I}/offsets", _READS, consumers.get_committed),
    ("POST", f"{_I}/positions", _READS, consumers.seek),
    ("POST", f"{_I}/positions/beginning", _READS, consumers.seek_to_beginning),
    ("POST", f"{_I}/positions/end", _READS, consumers.seek_to_end),
)

_K: Final = "/v3/clusters/{cluster}"
_KT: Final = f"{_K}/topics/{{topic}}"
_KG: Final = f"{_K}/consumer-groups/{{group}}"

_V3: Final[tuple[tuple[str, str, Rule, Handler], ...]] = (
    ("GET", "/v3/clusters", _READS, v3.list_clusters),
    ("GET", _K, _READS, v3.get_cluster),
    ("GET", f"{_K}/brokers", _READS, v3.list_brokers),
    ("GET", f"{_K}/brokers/{{broker}}", _READS, v3.get_broker),
    ("GET", f"{_K}/brokers/-/configs", _READS, v3.list_broker_configs),
    ("GET", f"{_K}/brokers/{{broker}}/configs", _READS, v3.list_broker_configs),
    ("GET", f"{_K}/brokers/{{broker}}/configs/{{config}}", _READS, v3.get_broker_config),
    ("GET", f"{_K}/brokers/{{broker}}/partition-replicas", _READS, v3.list_broker_replicas),
    ("GET", f"{_K}/broker-configs", _READS, v3.list_cluster_configs),
    ("GET", f"{_K}/topics", _READS, v3.list_topics),
    ("GET", f"{_K}/topics/-/partitions/-/reassignment", _READS, v3.list_reassignments),
    ("POST", f"{_K}/topics", _ADMINS, v3.create_topic),
    ("GET", _KT, _READS, v3.get_topic),
    ("PATCH", _KT, _ADMINS, v3.add_partitions),
    ("DELETE", _KT, _DELETES, v3.delete_topic),
    ("GET", f"{_KT}/partitions", _READS, v3.list_partitions),
    ("GET", f"{_KT}/partitions/{{partition}}", _READS, v3.get_partition),
    ("GET", f"{_KT}/partitions/-/reassignment", _READS, v3.list_reassignments),
    ("GET", f"{_KT}/partitions/{{partition}}/offset", _READS, v3.get_partition_offsets),
    ("GET", f"{_KT}/partitions/{{partition}}/replicas", _READS, v3.list_replicas),
    ("GET", f"{_KT}/partitions/{{partition}}/replicas/{{broker}}", _READS, v3.get_replica),
    ("GET", f"{_KT}/configs", _READS, v3.list_configs),
    ("POST", f"{_KT}/configs:alter", _ADMINS, v3.alter_configs),
    ("GET", f"{_KT}/configs/{{config}}", _READS, v3.get_config),
    ("PUT", f"{_KT}/configs/{{config}}", _ADMINS, v3.put_config),
    ("DELETE", f"{_KT}/configs/{{config}}", _ADMINS, v3.reset_config),
    ("POST", f"{_KT}/records", _WRITES, v3_records.produce),
    ("POST", f"{_KT}/records:batch", _WRITES, v3_records.produce_batch),
    ("GET", f"{_K}/consumer-groups", _READS, v3.list_groups),
    ("GET", _KG, _READS, v3.get_group),
    ("GET", f"{_KG}/consumers", _READS, v3.list_members),
    ("GET", f"{_KG}/consumers/{{consumer}}", _READS, v3.get_member),
    ("GET", f"{_KG}/consumers/{{consumer}}/assignments", _READS, v3.list_assignments),
    ("GET", f"{_KG}/consumers/{{consumer}}/assignments/{{topic}}/partitions/{{partition}}", _READS, v3.get_assignment),
    ("GET", f"{_KG}/lags", _READS, v3.list_lags),
    ("GET", f"{_KG}/lags/{{topic}}/partitions/{{partition}}", _READS, v3.get_lag),
    ("GET", f"{_KG}/lag-summary", _READS, v3.get_lag_summary),
)


#: Lists of what each cell has a part of; and the creation of a topic whose name is in the body.
_OF_ALL: Final = frozenset(
    [topics.list_topics, v3.list_topics, v3.create_topic, v3.list_broker_replicas, v3.list_groups]
)


def operations(prefix: str) -> list[Operation]:
    """All operations of the proxy, below its prefix."""
    return [*_declared(prefix, _V2, answer_v2), *_declared(prefix, _V3, answer_v3)]


def _declared(prefix: str, table: tuple[tuple[str, str, Rule, Handler], ...], refuse: Refuse) -> Iterator[Operation]:
    for method, path, rule, handler in table:
        yield Operation(
            method=method,
            path=prefix + path,
            rule=rule,
            handler=handler,
            reads_body=True,
            owner=_owner(path, handler),
            refuse=refuse,
        )


def _owner(path: str, handler: Handler) -> Owner:
    if handler in _OF_ALL:
        return Owner.ALL
    if "{group}" in path:
        return Owner.GROUP
    return Owner.TOPIC if "{topic}" in path else Owner.ANY
