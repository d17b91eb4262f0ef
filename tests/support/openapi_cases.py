"""Requests generated from the OpenAPI document, and the checks for every answer.

    cases = Cases()
    for label in cases.labels: ...            # "POST /v0/topics/{topic}"
    @given(cases.of(label))
    def each(case): check(case, case.call(base_url=url))
    for case in cases.covering(label): check(case, case.call(base_url=url))

Half of the names in paths are names of existing things (see `furnish`). Otherwise every call would end in a 404.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import requests
import schemathesis
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from broker.api.app import OPERATIONS
from broker.api.openapi import document
from broker.content.errors import CODES
from schemas.fields import MAX_U64

#: What no schema says, because it depends on what exists or on other fields. Whole messages of 400s to well-formed
#: requests.
BEYOND_SCHEMAS: Final = [
    re.compile(pattern)
    for pattern in (
        # what exists
        r"(topics\.\S+\.)?partition: \S+ has \d+, counted from 0\.",
        r"cursor: not a cursor of this broker\.",
        r"(start|seq) must be 0 to \d+, the newest( seq)? of \S+\.",
        r"\S+ is ephemeral, and a cursor must not outlive its records: it has no consumers\.",
        r"\S+ has no dead letter topic: name the source in `from`\.",
        r"from: a queue is not redriven from itself\.",
        r"records\[\d+\]\.\w+ is for queues only; \S+ is a log\.",
        r"This broker has no directory for backups: .*",
        r"\w+: cannot be changed.*",
        # combinations of fields
        r"before_seq or match is required\.",
        r"\w+ drops records, which cleanup_policy (compact|none) forbids\.",
        r"(config\.)?dead_letter: a topic cannot be its own dead letter topic\.",
        r"(config\.)?max_deliveries: needs dead_letter, .*",
        r"records\[\d+\] has both delay_ms and deliver_at; give one\.",
        r"\w+: give exactly one of seq, ts and to\.",
        r"dest: a router cannot lead from a topic to itself\.",
        r"lease_ids: one for each of the \d+ seqs, or none at all, but there are \d+\.",
        # bytes, while schemas count characters; and an instant that moves on
        r"\S+ must have (1 to|at most) \d+ bytes, this has \d+\.",
        r"\S+ must be at most 366 days \(\d+ ms\) ahead\.",
        # a protocol of its own
        r"Upgrade: this path supports only WebSocket \(RFC 6455\)\.",
    )
]
LOG, QUEUE, DEAD, CONSUMER, ROUTER = "there-log", "there-queue", "there-dead", "there-consumer", "there-router"
#: The values of a name in a path that is not generated.
THERE: Final[dict[str, list[Any]]] = {
    "topic": [LOG, QUEUE],
    "consumer": [CONSUMER],
    "router": [ROUTER],
    "seq": [1, 2, 3, 4, 2**64 - 1],
    "first_seq": [0, 1, 2],
}
#: A successful answer to this one has no end, so only its refusals are requested.
STREAM: Final = "GET /v0/topics/{topic}/work"
MAX_WAIT_MS: Final = 5
PATIENCE_S: Final = 30

Case = schemathesis.Case


class Cases:
    """Of the document as this source makes it."""

    def __init__(self) -> None:
        self._schema = schemathesis.openapi.from_dict(document(OPERATIONS), config=SchemathesisConfig())
        self._operations = {
            operation.label: operation for operation in (result.ok() for result in self._schema.get_all_operations())
        }
        self.labels = sorted(self._operations)

    def of(self, label: str) -> SearchStrategy[Case]:
        """Requests of one operation: as described, and with errors in them."""
        operation = self._operations[label]
        right = operation.as_strategy(GenerationMode.POSITIVE)
        has_input = bool(operation.path_parameters or operation.query or operation.headers or operation.body)
        made = st.one_of(right, right, operation.as_strategy(GenerationMode.NEGATIVE)) if has_input else right
        return _furnished(made, label)

    def covering(self, label: str) -> Iterator[Case]:
        """Each bound, kind and combination in the document of one operation, from both sides. Always the same cases in
        the same order."""
        operation = self._operations[label]
        config = self._schema.config.generation_for(operation=operation)
        modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        cases = self._schema.iter_coverage_cases(operation, generation_modes=modes, generation_config=config)
        for number, case in enumerate(cases):
            for name in () if _is_wrong_in_path(case) else case.path_parameters or {}:
                known = _known(label, name)
                if known:
                    case.path_parameters[name] = known[number % len(known)]
            for container in (case.query, case.body):
                if isinstance(container, dict):
                    _hurried(container)
            yield case


@st.composite
def _furnished(draw: Any, made: SearchStrategy[Case], label: str) -> Case:
    case = draw(made)
    for name in () if _is_wrong_in_path(case) else case.path_parameters or {}:
        known = _known(label, name)
        if known and draw(st.booleans()):
            case.path_parameters[name] = draw(st.sampled_from(known))
    for container in (case.query, case.body):
        if isinstance(container, dict):
            _hurried(container)
    return case


def _known(label: str, name: str) -> list[Any]:
    """The values of that part of the path that lead to existing things."""
    return [each for each in THERE.get(name, []) if (label, each) != (STREAM, QUEUE)]


def _is_wrong_in_path(case: Case) -> bool:
    """Whether the error in it stays if a name in its path is replaced."""
    if case.meta is None or not case.meta.generation.mode.is_negative:
        return False
    data: Any = case.meta.phase.data
    places = {data.parameter_location, *(each.parameter_location for each in getattr(data, "mutations", ()))}
    return bool(places & {ParameterLocation.PATH, None})


def _hurried(fields: dict[str, Any]) -> None:
    """Shorten a wait, if the request has one."""
    wait_ms = fields.get("wait_ms")
    if isinstance(wait_ms, int | float) and MAX_WAIT_MS < wait_ms <= MAX_U64:
        fields["wait_ms"] = MAX_WAIT_MS
    elif isinstance(wait_ms, str) and wait_ms.isdigit() and int(wait_ms[:21]) <= MAX_U64:
        fields["wait_ms"] = str(min(int(wait_ms[:20]), MAX_WAIT_MS))
    rate_per_s = fields.get("rate_per_s")
    if isinstance(rate_per_s, int | float) and 0 < rate_per_s < 1000:
        fields["rate_per_s"] = 1000


def _is_beyond_floats(case: Case) -> bool:
    """Whether a number is above 2^64 - 1, but equal to it for code that compares floats, like the validator of
    schemas."""
    return any(
        MAX_U64 < int(digits) < 2**64 + 4096 for digits in re.findall(r"\d{20}", json.dumps(case.body, default=str))
    )


def check(case: Case, response: Any, headers: dict[str, str] | None = None) -> None:
    """The answer is one of the document's, and a refusal is one of the API's."""
    status: int = response.status_code
    assert status < 500, response.text
    beyond = status == 400 and any(each.fullmatch(response.json()["error"]["message"]) for each in BEYOND_SCHEMAS)
    beyond = beyond or (status == 400 and _is_beyond_floats(case))
    case.validate_response(response, headers=headers, excluded_checks=[positive_data_acceptance] if beyond else None)
    if status < 400:
        return
    error = json.loads(response.content)["error"]
    assert set(error) <= {"code", "message", "detail"}
    assert CODES[error["code"]].status == status, error
    assert error["message"]
    answered = response.headers
    assert ("retry-after" in answered) == (CODES[error["code"]].wait_s is not None)
    assert ("www-authenticate" in answered) == (status == 401)


def furnish(session: requests.Session, url: str) -> None:
    """Make the things that the names in `THERE` stand for, if they are missing. A generated request may have created
    the queue as a log, or the router with another source."""
    found = session.get(f"{url}/v0/topics/{QUEUE}", timeout=PATIENCE_S)
    if found.ok and found.json()["config"]["type"] != "queue":
        assert session.delete(f"{url}/v0/topics/{QUEUE}", timeout=PATIENCE_S).ok
    found = session.get(f"{url}/v0/routers/{ROUTER}", timeout=PATIENCE_S)
    if found.ok and found.json()["source"] != LOG:
        assert session.delete(f"{url}/v0/routers/{ROUTER}", timeout=PATIENCE_S).ok
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"topics/{LOG}", {}),
        ("PUT", f"topics/{DEAD}", {}),
        ("PUT", f"topics/{QUEUE}", {"type": "queue", "dead_letter": DEAD, "lease_ms": 100, "max_deliveries": 2}),
        ("PUT", f"topics/{LOG}/consumers/{CONSUMER}", {}),
        ("PUT", f"routers/{ROUTER}", {"source": LOG, "dest": DEAD}),
        ("POST", f"topics/{LOG}", {"records": [{"data": number, "tag": "a"} for number in range(3)]}),
        ("POST", f"topics/{QUEUE}", {"records": [{"data": number, "meta": {"a": 1}} for number in range(3)]}),
    ]
    for method, path, body in wanted:
        answer = session.request(method, f"{url}/v0/{path}", json=body, timeout=PATIENCE_S)
        assert answer.ok, answer.text
