"""Authentication."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Bytes, Int16, Int64, Message, NullableString, Since, String, flexible


class SaslHandshakeRequest(Message):
    mechanism: String = ""


class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[String] = []


@flexible(2)
class SaslAuthenticateRequest(Message):
    auth_bytes: Bytes = b""


@flexible(2)
class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0
