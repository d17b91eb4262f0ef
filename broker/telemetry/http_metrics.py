"""Metrics of HTTP requests, and the two output forms of all metrics: Prometheus text and JSON
(docs/reference/metrics.md).

Each scrape renders plain counters, so that the hot path uses no metrics library. Label values are bounded: routes are
templates, methods are those we know, statuses are classes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sized
from itertools import accumulate
from typing import Any, Final, TypeAlias

import msgspec

from broker.content import Slices
from broker.net import Phase
from broker.telemetry.metric_table import METRICS
from storage import Family, HistogramSample, LimitReached, Sample

Labels: TypeAlias = tuple[tuple[str, str], ...]

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class Latencies:
    """A histogram of requests by their duration."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total_s += seconds

    def sample(self, labels: Labels) -> HistogramSample:
        buckets = zip((*SECONDS, math.inf), accumulate(self.counts), strict=True)
        return HistogramSample(labels, tuple(buckets), self.total_s)


class Answered(Latencies):
    """The answered requests of one route and method: also their number by status class (2 = 2xx)."""

    __slots__ = ("statuses",)

    def __init__(self) -> None:
        super().__init__()
        self.statuses = [0] * 6


class HttpMetrics:
    """Requests by route, method and status class."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], Answered] = {}
        self._gone: dict[str, int] = {}
        #: By limit: requests refused because it was reached.
        self._limits: dict[str, int] = {}
        #: By phase (see `broker.net.slow`): connections cut off because their client was too slow.
        self._slow = dict.fromkeys(Phase, 0)
        #: Floods by kind (see `broker.server.control_frames`; protocol: too many resets, heads in too many frames).
        self._floods: dict[str, int] = {"control_frames": 0, "protocol": 0}
        self.connections_refused = 0
        #: The open connections of each server; they add themselves.
        self.connections: list[Sized] = []
        #: By code: requests refused before their operation was known, or because their key does not allow it.
        self._refused = dict.fromkeys(("unauthorized", "forbidden", "request_timeout", "header_too_large"), 0)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        answered = self._requests.get((route, method)) or self._first(route, method)
        answered.statuses[status // 100] += 1
        # The same as `Latencies.add`, without one more call per request.
        answered.counts[bisect_left(SECONDS, seconds)] += 1
        answered.total_s += seconds

    def _first(self, route: str, method: str) -> Answered:
        return self._requests.setdefault((route, method if method in _METHODS else "other"), Answered())

    @property
    def requests_total(self) -> int:
        """Requests that were answered, of all routes."""
        return sum(sum(each.statuses) for each in self._requests.values())

    def refused(self, error: Exception) -> None:
        """Count a refusal, if it belongs to one of the families here."""
        if isinstance(error, LimitReached):
            limit: str = error.detail["limit"]
            self._limits[limit] = self._limits.get(limit, 0) + 1
            return
        code: str = getattr(error, "code", "")
        if code in self._refused:
            self._refused[code] += 1

    def too_slow(self, phase: Phase) -> None:
        """Count a connection that is cut off, or a body that is abandoned, because the client is too slow."""
        self._slow[phase] += 1

    def flooded(self, of: str) -> None:
        """Count a connection that is closed for a flood."""
        self._floods[of] += 1

    def client_gone(self, route: str) -> None:
        """Count a request that was not answered because its client had left."""
        self._gone[route] = self._gone.get(route, 0) + 1

    def families(self) -> Iterator[Family]:
        yield METRICS.whole("topics_connections", sum(map(len, self.connections)))
        yield METRICS.whole("topics_connections_refused", self.connections_refused)
        yield _by("topics_slow_clients", "phase", [(phase.value, count) for phase, count in self._slow.items()])
        yield _by("topics_http2_floods", "of", self._floods.items())
        yield _by("topics_refused", "code", self._refused.items())
        yield _by("topics_limit_refused", "limit", self._limits.items())
        yield METRICS.family(
            "topics_http_requests",
            [
                Sample((("route", route), ("method", method), ("status", f"{status}xx")), count)
                for (route, method), answered in self._requests.items()
                for status, count in enumerate(answered.statuses)
                if count
            ],
        )
        yield METRICS.family(
            "topics_http_request_seconds",
            [
                answered.sample((("route", route), ("method", method)))
                for (route, method), answered in self._requests.items()
            ],
        )
        yield _by("topics_http_clients_gone", "route", self._gone.items())


def _by(name: str, label: str, counts: Iterable[tuple[str, int]]) -> Family:
    return METRICS.family(name, [Sample(((label, value),), count) for value, count in counts])


async def as_text(families: Iterable[Family]) -> bytes:
    """The Prometheus text format, version 0.0.4. Rendered in slices."""
    lines: list[str] = []
    work = Slices()
    for family in families:
        name = family.exposed
        lines.append(f"# HELP {name} {_escaped(family.help, quotes=False)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for sample in family.samples:
            await work.done(0)
            lines += [_line(name + suffix, labels, value) for suffix, labels, value in _numbers(sample)]
    return ("\n".join(lines) + "\n").encode()


async def as_json(families: Iterable[Family]) -> bytes:
    """`{"metrics": [{name, type, help, samples: [{name, labels, value}]}]}`, with the names of the text form.

    Rendered in slices.
    """
    metrics: list[dict[str, Any]] = []
    work = Slices()
    for family in families:
        name = family.exposed
        samples: list[dict[str, Any]] = []
        for sample in family.samples:
            await work.done(0)
            samples += [
                {"name": name + suffix, "labels": dict(labels), "value": value}
                for suffix, labels, value in _numbers(sample)
            ]
        metrics.append({"name": name, "type": family.kind, "help": family.help, "samples": samples})
    return msgspec.json.encode({"metrics": metrics})


def _numbers(sample: Sample | HistogramSample) -> Iterator[tuple[str, Labels, float]]:
    """(suffix of the name, labels, value) of each number in a sample."""
    if isinstance(sample, Sample):
        yield "", sample.labels, sample.value
        return
    for bound, count in sample.buckets:
        yield "_bucket", (*sample.labels, ("le", "+Inf" if bound == math.inf else str(bound))), count
    yield "_sum", sample.labels, sample.sum
    yield "_count", sample.labels, sample.buckets[-1][1]


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
