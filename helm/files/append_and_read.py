"""The chart's test (`helm test`): appends to a topic of its own, reads back what was appended, deletes the topic.

Only the standard library; the address, the key and the authority come from TOPICS_URL, TOPICS_TOKEN, SSL_CERT_FILE.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
import uuid

URL = os.environ["TOPICS_URL"].rstrip("/")
TOKEN = os.environ.get("TOPICS_TOKEN", "")
PATIENCE_S = 30
RECORDS = [{"data": {"n": n, "text": "grün"}} for n in range(3)]
# SSL_CERT_FILE is read by OpenSSL itself.
CONTEXT = ssl.create_default_context() if URL.startswith("https:") else None


def call(method, path, body=None):
    """The decoded answer; ends the program with what the broker said where it refuses."""
    headers = {"Content-Type": "application/json"}
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=CONTEXT) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"{method} {path}: {error.code} {error.read().decode(errors='replace')}")
    except urllib.error.URLError as error:
        sys.exit(f"{method} {URL}{path}: {error.reason}")


def main():
    topic = f"helm-test-{uuid.uuid4().hex}"
    print(call("GET", "/v0/ready"))
    call("PUT", f"/v0/topics/{topic}", {"durability": "fsync"})
    try:
        appended = call("POST", f"/v0/topics/{topic}", {"records": RECORDS})
        read = call("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0})["records"]
        if [record["data"] for record in read] != [record["data"] for record in RECORDS]:
            sys.exit(f"appended {RECORDS}, but read {read}")
        if [record["$seq"] for record in read] != appended["seqs"]:
            sys.exit(f"the seqs given were {appended['seqs']}, but read {read}")
    finally:
        call("DELETE", f"/v0/topics/{topic}")
    print(f"Appended {len(RECORDS)} records to {topic}, read them back, and deleted it.")


if __name__ == "__main__":
    main()
