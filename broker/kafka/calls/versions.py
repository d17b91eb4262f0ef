"""ApiVersions: the first request of every client."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.kafka.apis import APIS
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.codec import encode
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.session import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE_CHARS: Final = 255


def handler(handled: Collection[int]) -> Handler:
    """Make the handler. It advertises the kinds that `handled` contains when it is called."""

    async def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        said = f"{request.client_software_name} {request.client_software_version}"
        call.connection.software = said.strip()[:_SOFTWARE_CHARS]
        return ApiVersionsResponse(api_keys=_advertised(handled))

    return decoded(ApiVersionsRequest, api_versions)


def unsupported(handled: Collection[int]) -> bytes:
    """The answer to an unsupported version of ApiVersions: the client continues with the listed versions."""
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_advertised(handled))
    return encode(answer, 0)


def _advertised(handled: Collection[int]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.first, max_version=api.last)
        for api in APIS.values()
        if api.key in handled
    ]
