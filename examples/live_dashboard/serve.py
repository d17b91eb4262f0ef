"""Serves a page that shows the orders of the web shop as they come.

    TOPICS_CORS_ORIGINS=http://127.0.0.1:8000 make run      # the broker, in another terminal: it lets this page in
    make typescript                                         # the client that the page uses
    .venv/bin/python examples/web_shop/shop.py              # makes the topic
    .venv/bin/python examples/live_dashboard/serve.py 8000

Then open http://127.0.0.1:8000. Records do not pass through this program: the page reads them from the broker.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CLIENT = FOLDER.parents[1] / "clients/typescript/dist"


class Handler(SimpleHTTPRequestHandler):
    # A project with a bundler imports the package by its name; this one has none, and serves the files as they are.
    def translate_path(self, path: str) -> str:
        root, prefix = (CLIENT, "/client/") if path.startswith("/client/") else (FOLDER / "page", "/")
        self.directory = str(root)
        return super().translate_path("/" + path.removeprefix(prefix))


def main() -> None:
    if not (CLIENT / "index.js").exists():
        raise SystemExit("The client is not built yet: make typescript")
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    with ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(FOLDER / "page"))) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
