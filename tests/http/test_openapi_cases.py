"""Requests generated from the OpenAPI document: each answer is a documented one, and never a server error.

Requests at the documented bounds, and those with keys, are in the slow tier.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest
import requests
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.support.live_server import LiveServer
from tests.support.openapi_cases import PATIENCE_S, Case, Cases, check, furnish

T = TypeVar("T")
CASES = Cases()
EXAMPLES, SOAK_EXAMPLES = 3, 200
#: The part of the coverage phase that a short run tries.
COVERED_ONE_OF = 9
SEEDS = [77, 1, 2024]
ALL, WEAK, PREFIXED = "all-of-it", "only-read", "only-some"
KEYS = f"{ALL},{WEAK}:r,{PREFIXED}::there-l"
#: Operations that need no key.
OPEN = {"GET /v0/health", "GET /v0/ready"}


#: Without the stream that begins without a request before it: it does not end. tests/http/test_overview.py reads it.
LABELS = [label for label in CASES.labels if label != "GET /v0/overview/stream"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(data_dir(tmp_path_factory)) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(data_dir(tmp_path_factory), api_keys=KEYS) as server:
        yield server


def data_dir(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("openapi") / "data"


def seeds(soak_mode: bool) -> list[int]:
    """Seed 77 once showed differences between the document and the broker."""
    return [*SEEDS, secrets.randbits(32)] if soak_mode else SEEDS


def covering(label: str, soak_mode: bool) -> Iterator[Case]:
    """Cases of the coverage phase: all in the soak tier, otherwise a sample at regular distances."""
    return islice(CASES.covering(label), None, None, 1 if soak_mode else COVERED_ONE_OF)


def held_to(soak_mode: bool, made: SearchStrategy[T], judge: Callable[[T], None]) -> None:
    """Check this many requests of each seed. A failure names its request."""
    for number in seeds(soak_mode):

        @settings(max_examples=SOAK_EXAMPLES if soak_mode else EXAMPLES, database=None)
        @seed(number)
        @given(made)
        def each(case: T) -> None:
            judge(case)

        try:
            each()
        except BaseException as failure:
            failure.add_note(f"seed {number}")
            raise


@pytest.mark.parametrize("label", LABELS)
def test_a_made_up_request_is_answered_as_documented(server: LiveServer, soak_mode: bool, label: str) -> None:
    """Requests that the document allows are accepted, others are refused."""
    with requests.Session() as session:
        furnish(session, server.url)

        def judge(case: Case) -> None:
            check(case, case.call(server.url, session, timeout=PATIENCE_S))

        held_to(soak_mode, CASES.of(label), judge)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_request_at_a_bound_is_answered_as_documented(server: LiveServer, soak_mode: bool, label: str) -> None:
    """Every bound, kind and combination that the document names, from both sides."""
    with requests.Session() as session:
        furnish(session, server.url)
        for case in covering(label, soak_mode):
            check(case, case.call(server.url, session, timeout=PATIENCE_S))


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_request_at_a_bound_is_answered_as_documented_to_a_key(
    guarded: LiveServer, soak_mode: bool, label: str
) -> None:
    headers = {"authorization": f"Bearer {ALL}"}
    with requests.Session() as session:
        for case in covering(label, soak_mode):
            check(case, case.call(guarded.url, session, headers, timeout=PATIENCE_S), headers)


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_made_up_request_is_answered_as_documented_to_keys_alone(
    guarded: LiveServer, soak_mode: bool, label: str
) -> None:
    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {ALL}"
        furnish(session, guarded.url)
        del session.headers["authorization"]
        keys = st.sampled_from([ALL, ALL, WEAK, PREFIXED, "", "another"])

        def judge(made: tuple[Case, str]) -> None:
            case, key = made
            headers = {"authorization": f"Bearer {key}"}
            response = case.call(guarded.url, session, headers, timeout=PATIENCE_S)
            check(case, response, headers)
            if label not in OPEN:
                assert (response.status_code == 401) == (key in ("", "another"))

        held_to(soak_mode, st.tuples(CASES.of(label), keys), judge)
