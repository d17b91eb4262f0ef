"""Addresses, and what network failures mean."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest

from topics_client import Client, ConnectionFailed, RetryPolicy, address, transport
from topics_client.errors import InvalidRequest
from topics_client.wire import Request


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:4000", "http://127.0.0.1:4000"),
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000"),
        ("http://127.0.0.1:4000/v0/", "http://127.0.0.1:4000"),
        ("broker:4000", "http://broker:4000"),
        ("localhost", "http://localhost"),
        (" https://example.com/behind/a/path ", "https://example.com/behind/a/path"),
        ("http://[::1]:4000", "http://[::1]:4000"),
    ],
)
def test_an_address_may_be_written_in_several_ways(given: str, base: str) -> None:
    assert address.base_url(given) == base


@pytest.mark.parametrize(
    "given",
    ["", "http://", "ftp://x", "http://x:port", "http://x:99999", "://", "http://[::1", "x" * 70, "a..b"],
)
def test_an_invalid_address_is_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match=r"http://127\.0\.0\.1:4000"):
        address.base_url(given)


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.ConnectTimeout("slow"), False),
        (httpx.PoolTimeout("busy"), False),
        (httpx.ReadTimeout("slow"), True),
        (httpx.WriteTimeout("slow"), True),
        (httpx.ReadError("reset"), True),
        (httpx.WriteError("reset"), True),
        (httpx.RemoteProtocolError("closed without an answer"), True),
    ],
)
def test_only_a_failure_before_the_first_byte_certainly_had_no_effect(error: httpx.HTTPError, sent: bool) -> None:
    found = transport.no_reply(error, "http://b:1", 3.0)
    assert found.sent is sent
    assert "http://b:1" in found.reason


def test_the_wait_of_a_long_poll_is_added_to_the_read_timeout() -> None:
    limits = transport.time_limits(Request(method="GET", target="/", wait_s=25), 10)
    assert (limits.read, limits.write) == (35, 10)


@pytest.mark.parametrize("proxy", ["http://proxy.invalid:1", "socks5://proxy.invalid:1", "no proxy at all"])
def test_loopback_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    for url in ("http://127.0.0.1:1", "localhost:1", "http://[::1]:1"):
        with Client(url, retry=RetryPolicy(total_s=0)) as client, pytest.raises(ConnectionFailed, match="No broker"):
            client.health()


def test_an_unusable_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "nonsense://x")
    with pytest.raises(InvalidRequest, match="proxy"):
        Client("http://broker.invalid:4000")


@pytest.mark.parametrize("token", ["a\nb", "a b", "k\u00e9y"])
def test_a_key_no_header_can_carry_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(InvalidRequest, match="printable ASCII") as caught:
        Client(token=token)
    assert token not in str(caught.value)


def test_the_line_break_after_a_key_is_removed() -> None:
    with transport.opened(httpx.Client, "http://127.0.0.1:1", "key\n", 1.0, None) as http:
        assert http.headers["authorization"] == "Bearer key"


def contexts(*addresses: str) -> list[ssl.SSLContext]:
    """What new clients of these addresses trust."""
    given: list[ssl.SSLContext] = []

    def taken(**options: Any) -> httpx.Client:
        given.append(options["verify"])
        return httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200)))

    for each in addresses:
        transport.opened(taken, address.base_url(each), None, 1.0, None)  # pyright: ignore
    return given


def test_certificates_are_loaded_once() -> None:
    first, second, third = contexts("https://a.invalid", "http://b.invalid", "https://a.invalid")
    assert first is second is third
    assert first.cert_store_stats()["x509_ca"] > 0
    assert first.verify_mode is ssl.CERT_REQUIRED


def test_without_tls_no_certificate_is_trusted() -> None:
    (nobody, here) = contexts("HTTP://127.0.0.1:4000", "https://127.0.0.1:4000")
    assert nobody.cert_store_stats()["x509_ca"] == 0
    assert nobody.verify_mode is ssl.CERT_REQUIRED
    assert nobody.check_hostname
    assert here.cert_store_stats()["x509_ca"] > 0


def test_certificates_named_by_the_environment_are_reloaded_after_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pem = tmp_path / "ca.pem"
    pem.write_bytes(Path(certifi.where()).read_bytes())
    (before,) = contexts("https://a.invalid")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    named, again = contexts("https://a.invalid", "https://a.invalid")
    assert named is again is not before
    os.utime(pem, ns=(1, 1))
    assert contexts("https://a.invalid") != [named]
    # It does not apply to an address that does not need it.
    pem.unlink()
    contexts("http://127.0.0.1")
    Client("http://10.1.2.3", http=httpx.MockTransport(lambda _: httpx.Response(200))).close()
    for url in ("https://a.invalid", "https://127.0.0.1"):
        with pytest.raises(InvalidRequest, match="certificates"):
            Client(url)
