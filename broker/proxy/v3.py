"""The resources of REST v3 as JSON. Pure.

A resource has a `kind`, a link to itself and links to related resources. Lists are complete: there is no next page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from broker.kafka import BROKER_ID, BrokerSetting, Setting, settings
from broker.proxy.group_view import GroupView, MemberView
from storage import TopicConfig

Shape = dict[str, Any]


class Lag(NamedTuple):
    """The lag of a group in a partition. `offset`: the committed one, which may be negative or beyond the end.
    `member`: the current reader."""

    topic: str
    partition: int
    offset: int
    end: int
    member: str = ""
    instance_id: str | None = None
    client_id: str = ""

    @property
    def records(self) -> int:
        """The number of records after the offset."""
        return max(0, self.end - max(0, self.offset))


class V3:
    """Makes the resources of one cluster. `base`: the URL before all links."""

    def __init__(self, base: str, cluster: str) -> None:
        self.cluster = cluster
        self._all = f"{base}/v3/clusters"
        self._root = f"{self._all}/{quote(cluster, safe='')}"

    # -- resources and lists -------------------------------------------------------------------------------------------

    def _resource(self, kind: str, path: str, resource: str, **fields: Any) -> Shape:
        return {
            "kind": f"Kafka{kind}",
            "metadata": {"self": self._root + path, "resource_name": f"crn:///kafka={self.cluster}{resource}"},
            "cluster_id": self.cluster,
            **fields,
        }

    def listed(self, kind: str, path: str, data: Iterable[Shape]) -> Shape:
        """A list of resources. `path`: the path of the list, below the cluster."""
        return {"kind": f"Kafka{kind}List", "metadata": {"self": self._root + path, "next": None}, "data": [*data]}

    def clusters(self) -> Shape:
        return {
            "kind": "KafkaClusterList",
            "metadata": {"self": self._all, "next": None},
            "data": [self.this_cluster()],
        }

    def _to(self, path: str) -> dict[str, str]:
        return {"related": self._root + path}

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def this_cluster(self) -> Shape:
        return self._resource(
            "Cluster", "", "",
            controller=self._to(f"/brokers/{BROKER_ID}"),
            acls=self._to("/acls"),
            brokers=self._to("/brokers"),
            broker_configs=self._to("/broker-configs"),
            consumer_groups=self._to("/consumer-groups"),
            topics=self._to("/topics"),
            partition_reassignments=self._to("/topics/-/partitions/-/reassignment"),
        )  # fmt: skip

    def broker(self, host: str, port: int) -> Shape:
        path = f"/brokers/{BROKER_ID}"
        return self._resource(
            "Broker", path, f"/broker={BROKER_ID}",
            broker_id=BROKER_ID,
            host=host,
            port=port,
            configs=self._to(f"{path}/configs"),
            partition_replicas=self._to(f"{path}/partition-replicas"),
        )  # fmt: skip

    # -- topics --------------------------------------------------------------------------------------------------------

    def setting(self, each: BrokerSetting) -> Shape:
        """A setting of the broker."""
        path = f"/brokers/{BROKER_ID}/configs/{each.name}"
        source = "STATIC_BROKER_CONFIG"
        return self._resource(
            "BrokerConfig", path, f"/broker={BROKER_ID}/config={each.name}",
            broker_id=BROKER_ID,
            name=each.name,
            value=each.value,
            is_default=False,
            is_read_only=True,
            is_sensitive=False,
            source=source,
            synonyms=[{"name": each.name, "value": each.value, "source": source}],
        )  # fmt: skip

    def topic(self, name: str, partitions: int, operations: Iterable[str] = ()) -> Shape:
        path = f"/topics/{quote(name, safe='')}"
        return self._resource(
            "Topic", path, f"/topic={name}",
            topic_name=name,
            is_internal=False,
            replication_factor=1,
            partitions_count=partitions,
            partitions=self._to(f"{path}/partitions"),
            configs=self._to(f"{path}/configs"),
            partition_reassignments=self._to(f"{path}/partitions/-/reassignment"),
            authorized_operations=list(operations),
        )  # fmt: skip

    def partition(self, name: str, number: int) -> Shape:
        path = f"/topics/{quote(name, safe='')}/partitions/{number}"
        return self._resource(
            "Partition", path, f"/topic={name}/partition={number}",
            topic_name=name,
            partition_id=number,
            leader=self._to(f"{path}/replicas/{BROKER_ID}"),
            replicas=self._to(f"{path}/replicas"),
            reassignment=self._to(f"{path}/reassignment"),
        )  # fmt: skip

    def partition_offsets(self, name: str, number: int, earliest: int, latest: int) -> Shape:
        path = f"/topics/{quote(name, safe='')}/partitions/{number}/offset"
        return self._resource(
            "Partition", path, f"/topic={name}/partition={number}/offset_type=earliest_and_latest",
            topic_name=name,
            partition_id=number,
            earliest_offset=earliest,
            latest_offset=latest,
        )  # fmt: skip

    def replica(self, name: str, number: int) -> Shape:
        path = f"/topics/{quote(name, safe='')}/partitions/{number}/replicas/{BROKER_ID}"
        return self._resource(
            "Replica", path, f"/topic={name}/partition={number}/replica={BROKER_ID}",
            topic_name=name,
            partition_id=number,
            broker_id=BROKER_ID,
            is_leader=True,
            is_in_sync=True,
            broker=self._to(f"/brokers/{BROKER_ID}"),
        )  # fmt: skip

    def config(self, name: str, setting: Setting, config: TopicConfig, largest: int) -> Shape:
        value = settings.value_of(setting, config, largest)
        default = settings.is_default(setting, config)
        source = "DEFAULT_CONFIG" if default else "DYNAMIC_TOPIC_CONFIG"
        synonyms = [{"name": setting.name, "value": value, "source": source}]
        if not default:
            synonyms.append({"name": setting.name, "value": setting.default, "source": "DEFAULT_CONFIG"})
        path = f"/topics/{quote(name, safe='')}/configs/{setting.name}"
        return self._resource(
            "TopicConfig", path, f"/topic={name}/config={setting.name}",
            topic_name=name,
            name=setting.name,
            value=value,
            is_default=default,
            is_read_only=False,
            is_sensitive=False,
            source=source,
            synonyms=synonyms,
        )  # fmt: skip

    # -- groups --------------------------------------------------------------------------------------------------------

    def group(self, group: str, view: GroupView) -> Shape:
        path = _group(group)
        return self._resource(
            "ConsumerGroup", path, f"/consumer-group={group}",
            consumer_group_id=group,
            is_simple=view.simple,
            partition_assignor=view.assignor,
            state=view.state,
            type="CLASSIC",
            is_mixed_consumer_group=False,
            coordinator=self._to(f"/brokers/{BROKER_ID}"),
            consumer=self._to(f"{path}/consumers"),
            consumers=self._to(f"{path}/consumers"),
            lag_summary=self._to(f"{path}/lag-summary"),
        )  # fmt: skip

    def member(self, group: str, member: MemberView) -> Shape:
        path = _consumer(group, member.id)
        return self._resource(
            "Consumer", path, f"/consumer-group={group}/consumer={member.id}",
            consumer_group_id=group,
            consumer_id=member.id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            assignments=self._to(f"{path}/assignments"),
        )  # fmt: skip

    def assignment(self, group: str, member: MemberView, topic: str, number: int) -> Shape:
        partition = f"{quote(topic, safe='')}/partitions/{number}"
        return self._resource(
            "ConsumerAssignment", f"{_consumer(group, member.id)}/assignments/{partition}",
            f"/consumer-group={group}/consumer={member.id}/assignment={topic}/partition={number}",
            consumer_group_id=group,
            consumer_id=member.id,
            topic_name=topic,
            partition_id=number,
            partition=self._to(f"/topics/{partition}"),
            lag=self._to(f"{_group(group)}/lags/{partition}"),
        )  # fmt: skip

    def lag(self, group: str, lag: Lag) -> Shape:
        path = f"{_group(group)}/lags/{quote(lag.topic, safe='')}/partitions/{lag.partition}"
        return self._resource(
            "ConsumerLag", path, f"/consumer-group={group}/lag={lag.topic}/partition={lag.partition}",
            consumer_group_id=group,
            topic_name=lag.topic,
            partition_id=lag.partition,
            current_offset=lag.offset,
            log_end_offset=lag.end,
            lag=lag.records,
            consumer_id=lag.member,
            instance_id=lag.instance_id,
            client_id=lag.client_id,
        )  # fmt: skip

    def lag_summary(self, group: str, lags: Iterable[Lag]) -> Shape:
        """The summary of at least one lag."""
        found = list(lags)
        most = max(found, key=lambda each: each.records)
        path = _group(group)
        partition = f"/topics/{quote(most.topic, safe='')}/partitions/{most.partition}"
        return self._resource(
            "ConsumerGroupLagSummary", f"{path}/lag-summary", f"/consumer-group={group}/lag-summary",
            consumer_group_id=group,
            max_lag_consumer_id=most.member,
            max_lag_instance_id=most.instance_id,
            max_lag_client_id=most.client_id,
            max_lag_topic_name=most.topic,
            max_lag_partition_id=most.partition,
            max_lag=most.records,
            total_lag=sum(each.records for each in found),
            max_lag_consumer=self._to(_consumer(group, most.member)),
            max_lag_partition=self._to(partition),
        )  # fmt: skip


def _group(group: str) -> str:
    return f"/consumer-groups/{quote(group, safe='')}"


def _consumer(group: str, member: str) -> str:
    return f"{_group(group)}/consumers/{quote(member, safe='')}"


def operations(data: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, str | None]]:
    """The changes of settings in a request, for `settings.altered`."""
    return [
        (
            str(each.get("name")),
            settings.Operation.DELETE if each.get("operation") == "DELETE" else settings.Operation.SET,
            None if each.get("value") is None else str(each["value"]),
        )
        for each in data
    ]
