"""The queue commands against a real broker: output and exit status."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from tests.client.real_broker import PATIENCE_S, RealBroker
from tests.client.test_cli_against_broker import start, stream
from topics_client import Client
from topics_client.commands import queues
from topics_client.commands.terminal import ExitCode

Topics = Callable[..., Result]


@pytest.fixture
def client(client: Client) -> Client:
    """The broker has a queue."""
    client.put_topic("q", type="queue")
    return client


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_printed_job_id_settles_the_claimed_job(topics: Topics, client: Client) -> None:
    client.append("q", [{"n": 1}])
    printed = topics("claim", "q").stdout
    assert printed.endswith('  {"n":1}\n')
    assert topics("ack", "q", printed.split()[0]).stdout == "Acked 1 job (0 ready, 0 in flight).\n"


def test_the_printed_job_id_does_not_settle_a_later_lease(topics: Topics, client: Client) -> None:
    client.append("q", [1])
    [first] = client.claim("q", "w").jobs
    client.nack("q", "w", [first])
    client.claim("q", "w")
    result = topics("ack", "q", f"1:{first.lease_id}", "--node", "w", status=ExitCode.REFUSED)
    assert "Skipped, as not leased to w (by that lease): 1." in result.stderr


def test_jobs_not_leased_to_the_node_are_skipped_and_reported(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2])
    client.claim("q", "w")
    result = topics("ack", "q", "1", "2", "--node", "w", status=ExitCode.REFUSED)
    assert result.stdout == "Acked 1 job (1 ready, 0 in flight).\n"
    assert "2." in result.stderr
    result = topics("ack", "q", "2", "--node", "w", "--json", status=ExitCode.REFUSED)
    assert (lines(result)[0]["skipped"], result.stderr) == ([2], "")


def test_strict_names_the_jobs_that_are_not_leased_and_settles_no_job(topics: Topics, client: Client) -> None:
    client.append("q", [1])
    client.claim("q", "w")
    for command, more in (("ack", []), ("nack", []), ("extend", ["--lease-ms", "5"])):
        result = topics(command, "q", "1", "7", "--node", "w", "--strict", *more, status=ExitCode.REFUSED)
        assert "Error:" in result.stderr
        result = topics(command, "q", "1", "7", "--node", "w", "--strict", "--json", *more, status=ExitCode.REFUSED)
        error = json.loads(result.stderr)["error"]
        assert (error["code"], error["detail"]["seqs"]) == ("lease_lost", [7])


def test_jobs_are_given_back_and_kept(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2])
    client.claim("q", "w", max=2)
    assert "Extended the leases of 2 jobs" in topics("extend", "q", "1", "2", "-N", "w", "--lease-ms", "60000").stdout
    back = topics("nack", "q", "1", "-N", "w", "--delay-ms", "60000", "--forgive", "--reason", "later")
    assert back.stdout == "Gave back 1 job (0 ready, 1 in flight).\n"
    assert [job.state for job in client.leases("q")] == ["delayed", "leased"]


@pytest.mark.parametrize("job", ["x", "-1", "1:", "1:lease_1", "1:lease_00c0ffee00c0ffeE", "1,2", ""])
def test_an_invalid_job_id_is_a_usage_error(topics: Topics, job: str) -> None:
    topics("ack", "q", "--", job, status=ExitCode.USAGE)


def test_more_jobs_than_a_call_takes_are_a_wrong_command_line(topics: Topics) -> None:
    topics("ack", "q", *map(str, range(1001)), status=ExitCode.USAGE)


def test_claimed_jobs_come_as_json(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2])
    jobs = lines(topics("claim", "q", "--json", "--max", "5", "--node", "w", "--lease-ms", "60000"))
    assert [(job["$seq"], job["data"], job["deliveries"]) for job in jobs] == [(1, 1, 1), (2, 2, 1)]


@pytest.mark.usefixtures("client")
def test_an_empty_claim_is_reported_on_stderr(topics: Topics) -> None:
    for more in ([], ["--wait-ms", "1"], ["--json"]):
        result = topics("claim", "q", *more)
        assert (result.stdout, "no job" in result.stderr) == ("", True)


def test_jobs_are_listed(topics: Topics, client: Client) -> None:
    assert "There are no jobs." in topics("leases", "q").stderr
    client.append("q", [1, 2])
    client.claim("q", "w\x1b[31m")
    shown = topics("leases", "q").stdout.splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["SEQ", "STATE", "DELIVERIES", "NODE"],
        ["1", "leased", "1", "w\\x1b[31m"],
        ["2", "ready", "0", "-"],
    ]
    assert lines(topics("leases", "q", "--json", "--state", "ready")) == [
        {"$seq": 2, "state": "ready", "deliveries": 0}
    ]
    assert "There are no such jobs." in topics("leases", "q", "--state", "dead").stderr


def test_a_queue_is_paused_and_resumed(topics: Topics, client: Client) -> None:
    assert topics("pause", "q").stdout == "Paused q: no jobs are delivered.\n"
    assert lines(topics("pause", "q", "--json"))[0]["paused"] is True
    assert topics("resume", "q").stdout == "Resumed q.\n"
    assert (client.state("q").queue or {})["paused"] is False


def test_a_purge_wants_to_be_asked_about(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2])
    assert "give --yes" in topics("purge", "q", status=ExitCode.USAGE).stderr
    assert topics("purge", "q", "--yes", "--state", "delayed").stdout == "Deleted 0 jobs of q.\n"
    assert topics("purge", "q", "-y").stdout == "Deleted 2 jobs of q.\n"
    assert lines(topics("purge", "q", "-y", "--json"))[0]["purged"] == 0


def test_a_purge_has_limits(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2, 3, 4])
    limits = ("--max", "2", "--through-seq", "3")
    assert topics("purge", "q", "-y", *limits).stdout == "Deleted 2 jobs of q.\n"
    assert topics("purge", "q", "-y", *limits).stdout == "Deleted 1 job of q.\n"
    assert [job.seq for job in client.leases("q")] == [4]
    assert "--max" in topics("purge", "q", "-y", "--max", "0", status=ExitCode.USAGE).stderr


def test_a_purge_deletes_no_job_that_was_appended_after_the_question(
    topics: Topics, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        asked.append(question)
        client.append("q", ["late"])
        return err and len(asked) > 1

    class Terminal:
        def isatty(self) -> bool:
            return True

    class Sys:
        stdin = stderr = Terminal()

    monkeypatch.setattr(queues, "sys", Sys)
    monkeypatch.setattr(queues.click, "confirm", confirm)
    client.append("q", [1, 2])
    topics("purge", "q", status=ExitCode.REFUSED)
    assert topics("purge", "q").stdout == "Deleted 3 jobs of q.\n"
    assert (
        topics("purge", "q", "--state", "ready", "--max", "5", "--through-seq", "3").stdout == "Deleted 0 jobs of q.\n"
    )
    assert [job.seq for job in client.leases("q")] == [4, 5]
    assert asked == [
        "Delete jobs of q (2 ready and 0 delayed) permanently?",
        "Delete jobs of q (3 ready and 0 delayed) permanently?",
        "Delete at most 5 jobs of q (1 ready, only up to seq 3) permanently?",
    ]


def test_dead_jobs_are_brought_back(topics: Topics, client: Client) -> None:
    topics("put", "q", "--type", "queue", "--set", "max_deliveries=1", "--set", "dead_letter=dead")
    client.append("q", [1])
    client.claim("q", "w")
    topics("nack", "q", "1", "--node", "w", "--reason", "no")
    while (client.state("q").queue or {})["dead_lettered"] != 1:
        time.sleep(0.01)
    assert topics("redrive", "q", "--dry-run").stdout == "Would move 1 job back to q; 0 left.\n"
    assert topics("redrive", "q", "--from", "dead", "--max", "5").stdout == "Moved 1 job back to q; 0 left.\n"
    assert lines(topics("redrive", "q", "--json"))[0]["moved"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["claim"],
        ["ack", "1"],
        ["nack", "1"],
        ["extend", "1", "--lease-ms", "5"],
        ["leases"],
        ["pause"],
        ["resume"],
        ["purge", "--yes"],
        ["redrive"],
        ["work", "--ack"],
    ],
)
def test_a_queue_command_on_a_log_or_an_absent_topic_explains_the_refusal(
    topics: Topics, client: Client, arguments: list[str]
) -> None:
    client.put_topic("log")
    command, *more = arguments
    said = topics(command, "log", *more, status=ExitCode.REFUSED).stderr
    assert "is a log" in " ".join(said.split())
    assert "There is no topic" in " ".join(topics(command, "absent", *more, status=ExitCode.REFUSED).stderr.split())
    assert json.loads(topics(command, "log", *more, "--json", status=1).stderr)["error"]["code"] == "not_a_queue"


@pytest.mark.parametrize("more", [[], ["--ack", "--exec", "true"]])
def test_work_without_an_action_is_a_usage_error(topics: Topics, more: list[str]) -> None:
    assert "--exec COMMAND" in topics("work", "q", *more, status=ExitCode.USAGE).stderr


def test_work_with_ack_prints_jobs_and_acks_them(topics: Topics, client: Client) -> None:
    client.append("q", [1, 2, 3])
    assert [job["data"] for job in lines(topics("work", "q", "--ack", "--limit", "2", "--json"))] == [1, 2]
    assert [job.seq for job in client.leases("q")] == [3]


CHECK = f"""{sys.executable} -c '
import json, os, sys
data = json.loads(sys.stdin.readline())
print(os.environ["TOPICS_JOB_SEQ"], os.environ["TOPICS_JOB_TAG"], os.environ["TOPICS_JOB_DELIVERIES"], data["n"])
sys.exit(data["n"] == 2)
'"""


def test_work_runs_a_command_for_each_job(broker: RealBroker, client: Client) -> None:
    client.put_topic("q", type="queue", max_deliveries=2, dead_letter="dead")
    client.append("q", [{"n": 1}, {"n": 2}])
    client.append("q", [b'{"n":\n3}'])
    process = start(broker, "work", "q", "--exec", CHECK, "--limit", "4")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert sorted(out.decode().splitlines()) == ["1  1 1", "2  1 2", "2  2 2", "3  1 3"]
    assert err.decode().count("Job 2 failed (exit status 1).") == 2
    while not (dead := client.read("dead").records if client.state("q").queue["dead_lettered"] else []):  # pyright: ignore[reportOptionalSubscript]
        time.sleep(0.01)
    assert (dead[0].data, dead[0].meta["$dead_letter_reason"]) == ({"n": 2}, "the command failed")


def test_a_job_whose_command_failed_waits_although_its_queue_has_no_backoff(broker: RealBroker, client: Client) -> None:
    client.append("q", [1])
    process = start(broker, "work", "q", "--exec", "date +%s%N; exit 3", "--limit", "2")
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    first, second = map(int, out.split())
    # A second, of which a fifth at most is left out.
    assert second - first >= 700_000_000


def test_work_extends_the_lease_while_the_command_runs(broker: RealBroker, client: Client) -> None:
    client.append("q", [1])
    process = start(broker, "work", "q", "--exec", "sleep 1.5", "--limit", "1", "--lease-ms", "300")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    assert list(client.leases("q")) == []


def test_an_interrupted_work_returns_unfinished_jobs_at_once(broker: RealBroker, client: Client) -> None:
    client.append("q", [1])
    process = start(broker, "work", "q", "--exec", "sleep 0.5; echo began; exec sleep 60", "--node", "w")
    assert stream(process.stdout).readline() == b"began\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == ExitCode.INTERRUPTED
    while (client.state("q").queue or {})["in_flight"]:
        time.sleep(0.01)
    assert [job.state for job in client.leases("q")] == ["ready"]


def test_dead_letters_are_redriven_by_seq(topics: Topics, client: Client) -> None:
    client.put_topic("q", type="queue", max_deliveries=1, dead_letter="dead")
    client.append("q", [1, 2, 3])
    client.nack("q", "w", client.claim("q", "w", max=3).jobs)
    deadline = time.monotonic() + PATIENCE_S
    while (client.state("q").queue or {})["dead_lettered"] < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert topics("redrive", "q", "--seq", "3", "--seq", "1").stdout == "Moved 2 jobs back to q; 0 left.\n"
    assert [record.seq for record in client.read("dead").records] == [2]
    result = topics("redrive", "q", "--seq", "2", "--seq", "7", "--json", status=ExitCode.REFUSED)
    assert (lines(result)[0]["moved"], "1 seq named no job" in result.stderr) == (1, True)
    topics("redrive", "q", "--seq", "0", status=ExitCode.USAGE)
    assert sorted(job.data for job in client.claim("q", "w", max=9).jobs) == [1, 2, 3]
