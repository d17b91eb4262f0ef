"""The image's health check: whether the broker in this container answers. Kubernetes has probes of its own.

Only the standard library. Exit status 0: it lives; 1: it does not.
"""

import http.client
import os
import ssl
import sys

PATIENCE_S = 4


def main():
    port = int(os.environ.get("TOPICS_PORT") or 4000)
    if os.environ.get("TOPICS_TLS_CERT"):
        # Whose certificate it is does not matter to somebody who stands beside it.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/v0/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"no answer: {error}")
    # With TOPICS_PROBE_AUTH it wants a key, and lives.
    if status not in (200, 401):
        sys.exit(f"answered {status}")


if __name__ == "__main__":
    main()
