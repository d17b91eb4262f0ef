"""The metrics of the Kafka port. Labels have a limited number of values: kinds of requests, and error codes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Final

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.net import Phase
from broker.telemetry import METRICS, SECONDS, Latencies
from storage import Family, Sample

if TYPE_CHECKING:
    from broker.kafka.groups import Coordinator
    from broker.kafka.packed import Packed

#: The reasons for closing a connection without an answer.
REFUSALS: Final = ("connections", "malformed", "unsupported", "unauthenticated", "unavailable")
_CODES: Final = frozenset(int(code) for code in ErrorCode)


class KafkaMetrics:
    """The counters of one port."""

    def __init__(self, groups: Coordinator, packed: Packed) -> None:
        self._groups = groups
        self._packed = packed
        self._seconds: dict[int, Latencies] = {}
        self._errors: dict[tuple[int, int], int] = {}
        self._refused: dict[str, int] = dict.fromkeys(REFUSALS, 0)
        self._slow = dict.fromkeys(Phase, 0)
        #: The open connections; set by the port.
        self.connections: Sized = ()

    def observe(self, api_key: int, seconds: float, errors: list[int]) -> None:
        """Count an answered request."""
        latencies = self._seconds.get(api_key)
        if latencies is None:
            latencies = self._seconds[api_key] = Latencies()
        # Like `Latencies.add`, but without another call per request.
        latencies.counts[bisect_left(SECONDS, seconds)] += 1
        latencies.total_s += seconds
        for error in errors:
            key = (api_key, error if error in _CODES else int(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._errors[key] = self._errors.get(key, 0) + 1

    def refused(self, why: str) -> None:
        """Count a connection that the broker closes for this reason."""
        self._refused[why] += 1

    def too_slow(self, phase: Phase) -> None:
        """Count a connection that is closed because its client is too slow."""
        self._slow[phase] += 1

    def families(self) -> Iterator[Family]:
        yield METRICS.whole("topics_kafka_connections", len(self.connections))
        yield METRICS.whole("topics_kafka_groups", len(self._groups))
        yield METRICS.whole("topics_kafka_rebalances", self._groups.begun)
        yield METRICS.whole("topics_kafka_packed_bytes", self._packed.bytes)
        yield METRICS.family(
            "topics_kafka_packed",
            [Sample((("outcome", "made"),), self._packed.made), Sample((("outcome", "found"),), self._packed.found)],
        )
        yield METRICS.family(
            "topics_kafka_refused", [Sample((("why", why),), count) for why, count in self._refused.items()]
        )
        yield METRICS.family(
            "topics_kafka_slow_clients",
            [Sample((("phase", phase.value),), count) for phase, count in self._slow.items()],
        )
        yield METRICS.family(
            "topics_kafka_errors",
            [
                Sample((("api", _api(api_key)), ("error", ErrorCode(error).name)), count)
                for (api_key, error), count in self._errors.items()
            ],
        )
        yield METRICS.family(
            "topics_kafka_request_seconds",
            [latencies.sample((("api", _api(api_key)),)) for api_key, latencies in self._seconds.items()],
        )


def _api(api_key: int) -> str:
    return ApiKey(api_key).name.lower()
