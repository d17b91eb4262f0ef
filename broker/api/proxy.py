"""The routes of the REST Proxy: below its prefix, refusing in its own words."""

from __future__ import annotations

from typing import Final

from broker.api.routes import proxy_consumers as consumers
from broker.api.routes import proxy_topics as topics
from broker.api.routes import proxy_v3 as v3
from broker.api.routes import proxy_v3_records as v3_records
from broker.api.routing import Endpoint, Refuse, RouteTable
from broker.auth.table import rule_of
from broker.proxy.errors import answer_v2, answer_v3

_G: Final = "/consumers/{group}"
_I: Final = f"{_G}/instances/{{instance}}"
_T: Final = "/topics/{topic}"
_P: Final = f"{_T}/partitions/{{partition}}"

_V2: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "/topics", topics.list_topics),
    ("GET", _T, topics.get_topic),
    ("POST", _T, topics.produce_to_topic),
    ("GET", f"{_T}/partitions", topics.list_partitions),
    ("GET", _P, topics.get_partition),
    ("POST", _P, topics.produce_to_partition),
    ("GET", f"{_P}/offsets", topics.get_offsets),
    ("GET", f"{_P}/records", topics.read_partition),
    ("GET", "/brokers", topics.list_brokers),
    ("POST", _G, consumers.create),
    ("DELETE", _I, consumers.delete),
    ("POST", f"{_I}/subscription", consumers.subscribe),
    ("GET", f"{_I}/subscription", consumers.get_subscription),
    ("DELETE", f"{_I}/subscription", consumers.unsubscribe),
    ("POST", f"{_I}/assignments", consumers.assign),
    ("GET", f"{_I}/assignments", consumers.get_assignments),
    ("GET", f"{_I}/records", consumers.read),
    ("POST", f"{_I}/offsets", consumers.commit),
    ("GET", f"{_I}/offsets", consumers.get_committed),
    ("POST", f"{_I}/positions", consumers.seek),
    ("POST", f"{_I}/positions/beginning", consumers.seek_to_beginning),
    ("POST", f"{_I}/positions/end", consumers.seek_to_end),
)

_K: Final = "/v3/clusters/{cluster}"
_KT: Final = f"{_K}/topics/{{topic}}"
_KG: Final = f"{_K}/consumer-groups/{{group}}"

_V3: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "/v3/clusters", v3.list_clusters),
    ("GET", _K, v3.get_cluster),
    ("GET", f"{_K}/brokers", v3.list_brokers),
    ("GET", f"{_K}/brokers/{{broker}}", v3.get_broker),
    ("GET", f"{_K}/brokers/-/configs", v3.list_broker_configs),
    ("GET", f"{_K}/brokers/{{broker}}/configs", v3.list_broker_configs),
    ("GET", f"{_K}/brokers/{{broker}}/configs/{{config}}", v3.get_broker_config),
    ("GET", f"{_K}/brokers/{{broker}}/partition-replicas", v3.list_broker_replicas),
    ("GET", f"{_K}/broker-configs", v3.list_cluster_configs),
    ("GET", f"{_K}/topics", v3.list_topics),
    ("GET", f"{_K}/topics/-/partitions/-/reassignment", v3.list_reassignments),
    ("POST", f"{_K}/topics", v3.create_topic),
    ("GET", _KT, v3.get_topic),
    ("PATCH", _KT, v3.add_partitions),
    ("DELETE", _KT, v3.delete_topic),
    ("GET", f"{_KT}/partitions", v3.list_partitions),
    ("GET", f"{_KT}/partitions/{{partition}}", v3.get_partition),
    ("GET", f"{_KT}/partitions/-/reassignment", v3.list_reassignments),
    ("GET", f"{_KT}/partitions/{{partition}}/offset", v3.get_partition_offsets),
    ("GET", f"{_KT}/partitions/{{partition}}/replicas", v3.list_replicas),
    ("GET", f"{_KT}/partitions/{{partition}}/replicas/{{broker}}", v3.get_replica),
    ("GET", f"{_KT}/configs", v3.list_configs),
    ("POST", f"{_KT}/configs:alter", v3.alter_configs),
    ("GET", f"{_KT}/configs/{{config}}", v3.get_config),
    ("PUT", f"{_KT}/configs/{{config}}", v3.put_config),
    ("DELETE", f"{_KT}/configs/{{config}}", v3.reset_config),
    ("POST", f"{_KT}/records", v3_records.produce),
    ("POST", f"{_KT}/records:batch", v3_records.produce_batch),
    ("GET", f"{_K}/consumer-groups", v3.list_groups),
    ("GET", _KG, v3.get_group),
    ("GET", f"{_KG}/consumers", v3.list_members),
    ("GET", f"{_KG}/consumers/{{consumer}}", v3.get_member),
    ("GET", f"{_KG}/consumers/{{consumer}}/assignments", v3.list_assignments),
    ("GET", f"{_KG}/consumers/{{consumer}}/assignments/{{topic}}/partitions/{{partition}}", v3.get_assignment),
    ("GET", f"{_KG}/lags", v3.list_lags),
    ("GET", f"{_KG}/lags/{{topic}}/partitions/{{partition}}", v3.get_lag),
    ("GET", f"{_KG}/lag-summary", v3.get_lag_summary),
)


def register(table: RouteTable, prefix: str) -> None:
    """Enter the proxy's routes in the table."""
    _enter(table, prefix, _V2, answer_v2)
    _enter(table, prefix, _V3, answer_v3)


def _enter(table: RouteTable, prefix: str, routes: tuple[tuple[str, str, Endpoint], ...], refuse: Refuse) -> None:
    for method, template, endpoint in routes:
        route = table.add(method, prefix + template, endpoint, rule=rule_of(method, template))
        route.refuse = refuse
        if "topic" in route.parameters:
            at = route.parameters.index("topic")
            route.named = slice(at, at + 1)
