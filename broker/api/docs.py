"""The interactive documentation: Swagger UI from the files of the package fastapi-offline, without the internet.

The page's Content-Security-Policy forbids the browser to load anything from elsewhere, whatever those files contain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

import msgspec

from broker.api.operation import Operation, Owner
from broker.api.request import Request
from broker.auth import PROBE
from broker.content import TEMPORARY_REDIRECT, Answer, PathNotFound

_ASSETS: Final[dict[str, bytes]] = {
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
    "favicon.png": b"image/png",
    "start.js": b"text/javascript; charset=utf-8",
}
_START = b"""\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
});
"""
_PAGE = b"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>topics: HTTP API</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"><noscript>The API is described in <a href="openapi.json">openapi.json</a>.</noscript></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class DocsPages:
    """The page, its assets and the OpenAPI document. Each is read or made at the first request for it, then cached."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._make_document = document
        self._document: bytes | None = None
        self._making = asyncio.Lock()
        self._assets: dict[str, bytes] = {"start.js": _START}

    def operations(self) -> list[Operation]:
        """The operations that serve the pages. The OpenAPI document leaves them out."""
        return [
            Operation(method="GET", path=path, handler=handler, rule=PROBE, owner=Owner.ANY)
            for path, handler in (
                ("/", self.home),
                ("/docs", self.page),
                ("/docs/{asset}", self.asset),
                ("/openapi.json", self.openapi),
            )
        ]

    async def home(self, request: Request) -> Answer:
        return Answer(b"", status=TEMPORARY_REDIRECT, content_type=b"text/plain", headers=[(b"location", b"/docs")])

    async def page(self, request: Request) -> Answer:
        headers = [(b"content-security-policy", _POLICY)]
        return Answer(_PAGE, content_type=b"text/html; charset=utf-8", headers=headers)

    async def asset(self, request: Request) -> Answer:
        name = request.values[0]
        content_type = _ASSETS.get(name)
        if content_type is None:
            raise PathNotFound
        headers = [(b"cache-control", b"max-age=3600")]
        return Answer(self._asset(name), content_type=content_type, headers=headers)

    async def openapi(self, request: Request) -> Answer:
        if self._document is None:
            async with self._making:  # made once, even if several requests ask for it
                if self._document is None:
                    # This takes a tenth of a second, so it runs on a thread, and not at every start.
                    self._document = msgspec.json.encode(await asyncio.to_thread(self._make_document))
        return Answer(self._document)

    def _asset(self, name: str) -> bytes:
        content = self._assets.get(name)
        if content is None:
            content = files("fastapi_offline").joinpath("static", name).read_bytes()
            self._assets[name] = content
        return content
