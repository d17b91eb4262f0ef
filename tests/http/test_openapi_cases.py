"""Requests made up from the OpenAPI document: each answer is one that the document knows, none a failure of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.live_server import LiveServer
from tests.support.openapi_cases import PATIENCE_S, Case, Cases, check, furnish

CASES = Cases()
EXAMPLES, LONG_EXAMPLES = 6, 200
ALL, WEAK, PREFIXED = "all-of-it", "only-read", "only-some"
KEYS = f"{ALL},{WEAK}:r,{PREFIXED}::there-l"
#: Answers to whoever asks.
OPEN = {"GET /v0/health", "GET /v0/ready"}


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


@pytest.mark.parametrize("label", CASES.labels)
def test_every_answer_is_one_of_the_documents(server: LiveServer, long_mode: bool, label: str) -> None:
    with requests.Session() as session:
        furnish(session, server.url)

        @settings(max_examples=LONG_EXAMPLES if long_mode else EXAMPLES)
        @given(CASES.of(label))
        def each(case: Case) -> None:
            check(case, case.call(server.url, session, timeout=PATIENCE_S))

        each()


@pytest.mark.parametrize("label", CASES.labels)
def test_with_keys_too_and_nobody_else_gets_past_them(guarded: LiveServer, long_mode: bool, label: str) -> None:
    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {ALL}"
        furnish(session, guarded.url)
        del session.headers["authorization"]
        keys = st.sampled_from([ALL, ALL, WEAK, PREFIXED, "", "another"])

        @settings(max_examples=LONG_EXAMPLES if long_mode else EXAMPLES)
        @given(CASES.of(label), keys)
        def each(case: Case, key: str) -> None:
            headers = {"authorization": f"Bearer {key}"}
            response = case.call(guarded.url, session, headers, timeout=PATIENCE_S)
            check(case, response)
            if label not in OPEN:
                assert (response.status_code == 401) == (key in ("", "another"))

        each()
