"""Serves the console: a page, its script and its style. They contain no data; the page asks the API for it, with the
key that its user gives it.

The page's Content-Security-Policy allows no inline script or style, and nothing from other hosts.
"""

from __future__ import annotations

from typing import Final

from broker.api.operation import Operation, Owner
from broker.api.request import Request
from broker.auth import EVERYBODY
from broker.console import PAGE, ConsoleFile, ConsoleFiles
from broker.content import TEMPORARY_REDIRECT, Answer, PathNotFound, Streamed, accepts_gzip, status_of

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    b"trusted-types 'none'"
)
#: Browsers ask for the page each time: its name stays, and it names the files of this version.
_CHANGES: Final = (b"cache-control", b"no-cache")
_FIXED: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_NOT_BUILT: Final = b"""\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>topics: no console</title></head>
<body>
<h1>This broker has no console</h1>
<p>It was installed from sources, and the console has not been built. To build it, run <code>make console</code> in the
repository, and load this page again. The wheels and the image contain it.</p>
<p>Everything that the console does is in the <a href="docs">HTTP API</a>.</p>
</body>
</html>
"""


class ConsolePages:
    """The page and its assets."""

    def __init__(self) -> None:
        self._files = ConsoleFiles()

    def operations(self) -> list[Operation]:
        """The operations that serve them. The OpenAPI document leaves them out."""
        return [
            Operation(method="GET", path=path, handler=handler, rule=EVERYBODY, owner=Owner.SELF, always=True)
            for path, handler in (
                ("/console", self.page),
                ("/console/", self.without_slash),
                ("/console/{asset}", self.asset),
            )
        ]

    async def page(self, request: Request) -> Answer:
        headers = [(b"content-security-policy", _POLICY), _CHANGES]
        found = self._files.find(PAGE)
        if found is None:
            status = status_of("not_found")
            return Answer(_NOT_BUILT, status=status, content_type=b"text/html; charset=utf-8", headers=headers)
        return _answer(request, found, headers)

    async def without_slash(self, request: Request) -> Answer:
        """The page's links are relative to /console."""
        headers = [(b"location", b"../console")]
        return Answer(b"", status=TEMPORARY_REDIRECT, content_type=b"text/plain", headers=headers)

    async def asset(self, request: Request) -> Answer:
        name = request.values[0]
        found = None if name == PAGE else self._files.find(name)
        if found is None:
            raise PathNotFound
        return _answer(request, found, [_FIXED])


def _answer(request: Request, found: ConsoleFile, headers: list[tuple[bytes, bytes]]) -> Answer:
    """The file, as it was packed when it was built, if the client takes it so."""
    body, headers = found.body, [*headers, (b"vary", b"accept-encoding")]
    if accepts_gzip(request.headers.get(b"accept-encoding", b"")):
        body = found.packed
        headers.append((b"content-encoding", b"gzip"))
    is_head = request.scope["method"] == "HEAD"
    return Streamed(b"" if is_head else body, None, length=len(body), content_type=found.content_type, headers=headers)
