"""The operations of the API, without a web framework: thin functions between the routes and the storage engine."""

from broker.service import appends, consumers, partitions, queues, readiness, reads, routers, topics
from broker.service.backups import BackupJob, BackupJobs
from broker.service.predicates import check_topic_name, tag_match
from broker.service.topics import priority_of

__all__ = [
    "BackupJob",
    "BackupJobs",
    "appends",
    "check_topic_name",
    "consumers",
    "partitions",
    "priority_of",
    "queues",
    "readiness",
    "reads",
    "routers",
    "tag_match",
    "topics",
]
