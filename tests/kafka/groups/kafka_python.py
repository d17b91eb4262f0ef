"""kafka-python, whose import warns on some versions of Python."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin as admin
    import kafka.consumer as consumer
    import kafka.structs as structs

KafkaAdminClient = admin.KafkaAdminClient
KafkaConsumer = consumer.KafkaConsumer
OffsetAndMetadata = structs.OffsetAndMetadata
Partition = structs.TopicPartition
