"""The first contact with a broker, in the driver or the command line. Later ones are patient: see `Broker`.

Work that has begun waits for a broker that restarts. Before that, a silent address is more likely a mistake, so it is
an error soon, and the error names the option. A broker that answers "not now" counts as reached.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from pipeline.errors import BadOption, SourceUnreadable
from topics_client import Client, RetryPolicy, calls, within
from topics_client.errors import ApiError, ConnectionFailed, DeadlineExceeded, NotFound, TopicsError, UnexpectedAnswer

#: How long a broker is asked again, and when the first contact ends in any case.
PATIENCE_S, LIMIT_S = 8.0, 10.0
#: Of the first attempt: a port without TLS may never answer a handshake.
_FIRST_TRY_S = 3.0
#: Of the question whether a broker speaks https, or http.
_PROBE_S = 3.0
_ONCE = RetryPolicy(total_s=0)
#: What `silent` of the client's addresses says.
_SILENT = "did not answer within"
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def reach(client: Client, option: str) -> None:
    """Return once the broker has answered, or has taken a request and is slow.

    `option` is what has its URL: `url` or `--url`.

    Raises BadOption for a URL that no wait makes right, and SourceUnreadable if that takes longer than `LIMIT_S`.
    """
    try:
        with within(LIMIT_S):
            try:
                with within(_FIRST_TRY_S):
                    client.run(calls.health(), retry=_ONCE)
            except (ConnectionFailed, DeadlineExceeded) as error:
                last = _last(error)
                _check_scheme(client.url, option, last)
                if _UNTRUSTED in last.message:
                    raise
                client.run(calls.health(), retry=RetryPolicy(total_s=PATIENCE_S, cap_s=1.0))
    except NotFound as error:
        if path := urlsplit(client.url).path:
            right = client.url.removesuffix(path)
            raise BadOption(
                f"{option} is {client.url!r}, and the broker there has no path {path}: write {option}={right}."
            ) from error
    except (ConnectionFailed, DeadlineExceeded) as error:
        if _SILENT not in _last(error).message:
            raise SourceUnreadable(_unreachable(option, error)) from error
    except (ApiError, UnexpectedAnswer):
        return  # the call itself says what is wrong


def _last(error: ConnectionFailed | DeadlineExceeded) -> TopicsError:
    """The error of the last attempt."""
    return error.__cause__ if isinstance(error.__cause__, ConnectionFailed) else error


def _unreachable(option: str, error: ConnectionFailed | DeadlineExceeded) -> str:
    said = _last(error).message
    tried = f" Gave up after {error.tried_for_s:.0f} s." if error.tries > 1 else ""
    # It took a request, and gave no answer.
    kafka = " If it is the Kafka port: this is about the HTTP port." if "without an answer" in said else ""
    return (
        f"{said}{tried}{kafka} Check {option}, the broker's HTTP address, and that the broker runs (`topics serve` "
        "starts one)."
    )


def _check_scheme(base: str, option: str, error: TopicsError) -> None:
    """Raises BadOption if the address speaks https, and the URL says http, or the other way round."""
    parts = urlsplit(base)
    is_tls = parts.scheme == "https"
    if _UNTRUSTED in error.message or (not is_tls and error.outcome == "none"):
        return
    port = parts.port or (443 if is_tls else 80)
    host = parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc
    other = f"{'http' if is_tls else 'https'}://{host}:{port}{parts.path}"
    if _speaks(other):
        what = "without TLS" if is_tls else "with TLS"
        raise BadOption(f"{option} is {base!r}, but what listens there speaks HTTP {what}: write {option}={other}.")


def _speaks(base: str) -> bool:
    """Whether something at that address answers with this scheme. It gets no key."""
    is_tls = base.startswith("https")
    with Client(base, retry=_ONCE, timeout=_PROBE_S, direct=False) as client:
        try:
            client.health()
        except ConnectionFailed as error:
            return is_tls and _UNTRUSTED in error.message
        except UnexpectedAnswer:
            return is_tls  # a port with TLS may answer plain HTTP with a refusal
        except TopicsError:
            return True
        return True
