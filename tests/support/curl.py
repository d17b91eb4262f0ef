"""Replaces curl on machines without it, with the options that the documents use.

`python curl.py [-s] [-N] [-i] [-m SECONDS] [-X METHOD] [-H 'Name: value']... [-d BODY] URL` prints the body of the
answer, whatever its status, and with -i the status line and headers before it. As with curl, the exit code is 7 if
nothing answers, and 28 if the answer takes longer than -m allows.
"""

from __future__ import annotations

import argparse
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPResponse


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False)
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("-m", dest="most_s", type=float, default=60)
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="body")
    parser.add_argument("url")
    options = parser.parse_args(arguments)
    url = options.url if "://" in options.url else f"http://{options.url}"
    body = None if options.body is None else options.body.encode()
    request = urllib.request.Request(url, data=body, method=options.method)
    for header in options.headers:
        name, _, value = header.partition(":")
        request.add_header(name, value.strip())
    try:
        answer: HTTPResponse | urllib.error.HTTPError = urllib.request.urlopen(request, timeout=options.most_s)
    except urllib.error.HTTPError as error:
        answer = error
    except urllib.error.URLError:
        return 7
    with answer:
        if options.i:
            head = [f"HTTP/1.1 {answer.status} {answer.reason}", *(f"{k}: {v}" for k, v in answer.headers.items())]
            sys.stdout.write("\r\n".join([*head, "", ""]))
        end_s = time.monotonic() + options.most_s
        try:
            while piece := answer.read1():
                sys.stdout.write(piece.decode())
                if time.monotonic() > end_s:
                    return 28
        except TimeoutError:
            return 28
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
