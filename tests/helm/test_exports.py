"""Exports, compaction, and alerts about the jobs of a release. What Spark starts in Kubernetes is run as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from broker.telemetry import METRICS
from pipeline.session import provide_java
from storage import METRICS as OF_STORAGE
from tests.support.broker_process import PATIENCE_S, PYTHON_PATH, BrokerProcess
from tests.support.chart import CHART, ROOT, Document, Helm, container, find, pods

PROGRAM = CHART / "image/exporter.py"
SPARK = ("-f", str(CHART / "ci/spark-values.yaml"))
#: Stable metrics of kube-state-metrics, from its manual.
OF_KUBE_STATE = {
    "kube_job_failed", "kube_cronjob_status_last_successful_time", "kube_cronjob_created", "kube_pod_status_phase",
    "kube_pod_completion_time", "kube_statefulset_created",
}  # fmt: skip


def rules(documents: Sequence[Document]) -> dict[str, Any]:
    """The rules about jobs, by name."""
    groups = find(documents, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups[1:] for rule in group["rules"]}


@pytest.fixture
def full(helm: Helm) -> Sequence[Document]:
    return helm.render("-f", str(CHART / "ci/full-values.yaml"), "--set", "export.compact.schedule=@daily")


@pytest.mark.fast
def test_alerts_about_jobs_name_existing_metrics_and_the_jobs_of_the_release(full: Sequence[Document]) -> None:
    found = rules(full)
    assert set(found) == {
        "TopicsNoBackup", "TopicsBackupJobFailed", "TopicsExportJobFailed", "TopicsCompactJobFailed",
        "TopicsExportBehind",
    }  # fmt: skip
    jobs = {each["metadata"]["name"] for each in full if each["kind"] == "CronJob"}
    named: set[str] = set()
    for name, rule in found.items():
        metrics = set(re.findall(r"(?:topics|kube)_\w+", rule["expr"]))
        assert metrics
        assert metrics <= OF_KUBE_STATE | {each.name for each in (*METRICS, *OF_STORAGE)}, name
        named |= set(re.findall(r'cronjob="([^"]+)"', rule["expr"]))
        for pattern in re.findall(r'job_name=~"([^"]+)"', rule["expr"]):
            # The controller puts the scheduled minute behind the name.
            named |= {job for job in jobs if re.fullmatch(pattern, f"{job}-29345678")}
        assert 'namespace="somewhere"' in rule["expr"]
        assert rule["labels"]["severity"] == "warning"
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")
    assert named == jobs


@pytest.mark.fast
def test_alerts_have_the_limits_of_the_values(helm: Helm) -> None:
    options = ("backup.existingClaim=b", "backup.alertAfterSeconds=4000", "export.schedule=@hourly", "export.to=s3://a/b",
               "export.alertAfterSeconds=5000", "metrics.prometheusRule.enabled=true")  # fmt: skip
    found = rules(helm.render(*[part for each in options for part in ("--set", each)]))
    assert found["TopicsNoBackup"]["expr"].count("> 4000") == 2
    assert found["TopicsNoBackup"]["expr"].count("[4000s]") == 2
    assert "> 5000" in found["TopicsExportBehind"]["expr"]
    assert rules(helm.render("--set", "metrics.prometheusRule.enabled=true")) == {}


@pytest.mark.fast
def test_alerts_about_runs_of_spark_watch_the_pods_of_their_drivers(helm: Helm) -> None:
    documents = helm.render(*SPARK)
    found = rules(documents)
    assert set(found) == {
        "TopicsNoBackup", "TopicsBackupJobFailed", "TopicsExportJobFailed", "TopicsCompactJobFailed",
        "TopicsExportBehind",
    }  # fmt: skip
    # The operator puts the time behind the name of the application, and "driver" behind that.
    application = find(documents, "ScheduledSparkApplication")["metadata"]["name"]
    for name in ("TopicsExportJobFailed", "TopicsExportBehind"):
        expression = found[name]["expr"]
        metrics = set(re.findall(r"kube_\w+", expression))
        assert metrics <= OF_KUBE_STATE
        assert not [each for each in metrics if "job" in each]
        patterns = set(re.findall(r'pod=~"([^"]+)"', expression))
        assert len(patterns) == 1
        [pattern] = patterns
        assert re.fullmatch(pattern, f"{application}-1764367821123456789-driver")
        for other in (f"{application}-1764367821123456789-exec-1", f"other-{application}-1764367821123456789-driver"):
            assert not re.fullmatch(pattern, other)
        assert expression.count('namespace="somewhere"') == len(re.findall(r"kube_\w+\{", expression))
    behind = found["TopicsExportBehind"]["expr"]
    assert (behind.count("14400"), behind.count("[14400s]")) == (4, 2)
    assert f'statefulset="{find(documents, "StatefulSet")["metadata"]["name"]}"' in behind


@pytest.mark.fast
def test_a_job_has_failed_when_it_is_not_repeated_any_more(full: Sequence[Document]) -> None:
    """kube_job_status_failed counts pods that failed, also of a job whose next pod did the work. A job that
    failed after a long time has failed all the same, so it matters when it did, not when it began."""
    failed = [rule for name, rule in rules(full).items() if name.endswith("JobFailed")]
    assert len(failed) == 3
    for rule in failed:
        now, before = rule["expr"].split("unless on (namespace, job_name)")
        assert now.strip() == before.replace(" offset 6h", "").strip()
        assert 'condition="true"' in now


@pytest.mark.fast
def test_a_driver_that_is_started_again_has_not_failed(helm: Helm) -> None:
    documents = helm.render(*SPARK)
    failed = rules(documents)["TopicsExportJobFailed"]
    policy = find(documents, "ScheduledSparkApplication")["spec"]["template"]["restartPolicy"]
    # The operator waits longer each time.
    waits_s = policy["onFailureRetryInterval"] * policy["onFailureRetries"]
    assert waits_s < int(failed["for"].removesuffix("m")) * 60
    now, before = failed["expr"].split("unless on (namespace, pod, uid)")
    assert now.strip() == before.replace(" offset 6h", "").strip()


@pytest.mark.fast
def test_backups_before_a_start_of_the_broker_count(full: Sequence[Document]) -> None:
    """A broker says when its newest backup since its start was, so one that starts again each day would never be old
    enough, and one that has just started would have none."""
    expression = rules(full)["TopicsNoBackup"]["expr"]
    assert "max_over_time(topics_backup_newest_ms{" in expression
    assert "offset 172800s" in expression
    # Another pod has another address; each cell makes a backup.
    assert "by (namespace, pod, cell)" in expression
    assert expression.count("on (namespace, pod, cell)") == 2


@pytest.mark.fast
@pytest.mark.parametrize("name", ["topics", "a" * 35 + "-bcd", "a" * 40])
def test_a_run_of_spark_has_a_name_that_fits_into_a_label(helm: Helm, name: str) -> None:
    """The operator makes it a label of the driver, with a dash and the time in nanoseconds behind it."""
    documents = helm.render(*SPARK, "--set", f"fullnameOverride={name}")
    application = find(documents, "ScheduledSparkApplication")["metadata"]["name"]
    run = f"{application}-1764367821123456789"
    assert len(run) <= 63
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", run)
    for alert in ("TopicsExportJobFailed", "TopicsExportBehind"):
        rule = rules(documents)[alert]
        [pattern] = set(re.findall(r'pod=~"([^"]+)"', rule["expr"]))
        assert re.fullmatch(pattern, f"{run}-driver")
        assert application in rule["annotations"]["summary"]


@pytest.mark.fast
def test_tables_are_vacuumed_after_they_are_compacted(helm: Helm) -> None:
    def command(*options: str) -> list[str]:
        job = pods(helm.render(*SPARK, *[part for each in options for part in ("--set", each)]))["CronJob compact"]
        return container(job)["command"][3:]

    compacting = ["compact", "--to", "s3://lake/topics", "--topics", "*"]
    assert command() == [*compacting, "--vacuum", "--retain", "7d"]
    assert command("export.compact.vacuum.retain=30d") == [*compacting, "--vacuum", "--retain", "30d"]
    assert command("export.compact.vacuum.enabled=false") == compacting
    for retain in ("12h", "0d", "7"):
        assert "retain" in helm.refused(*SPARK, "--set-string", f"export.compact.vacuum.retain={retain}")


@pytest.mark.fast
def test_an_export_that_may_lag_behind_so_far_fails_when_it_is_further_behind(helm: Helm) -> None:
    given = ("--set", "export.maxLag=2500000")
    application = find(helm.render(*SPARK, *given), "ScheduledSparkApplication")["spec"]["template"]
    job = container(pods(helm.render(*SPARK, *given, "--set", "export.sparkOperator.enabled=false"))["CronJob export"])
    for arguments in (application["arguments"], job["command"]):
        assert arguments[arguments.index("--max-lag") + 1] == "2500000"
    assert "--max-lag" not in find(helm.render(*SPARK), "ScheduledSparkApplication")["spec"]["template"]["arguments"]


@pytest.mark.fast
def test_spark_runs_the_command_of_the_job(helm: Helm) -> None:
    documents = helm.render(*SPARK)
    application = find(documents, "ScheduledSparkApplication")["spec"]
    job = container(pods(helm.render(*SPARK, "--set", "export.sparkOperator.enabled=false"))["CronJob export"])
    template = application["template"]
    assert template["arguments"] == job["command"][3:]
    assert application["schedule"] == "15 * * * *"
    assert application["concurrencyPolicy"] == "Forbid"
    assert template["image"] == job["image"]
    assert template["imagePullSecrets"] == ["registry"]
    for part in ("driver", "executor"):
        pod = template[part]
        assert {name: pod[name] for name in ("env", "envFrom", "volumeMounts", "securityContext")} == {
            name: job[name] for name in ("env", "envFrom", "volumeMounts", "securityContext")
        }
        assert pod["tolerations"] == [{"key": "spark", "operator": "Exists"}]
        assert pod["labels"]["app.kubernetes.io/component"] == "export"
    assert template["executor"]["instances"] == 4
    assert "CronJob export" not in pods(documents)
    assert "CronJob compact" in pods(documents)
    [locked] = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("pyspark==")]
    assert template["sparkVersion"] == locked.removeprefix("pyspark==")
    copied = re.search(r"^COPY helm/image/exporter.py (\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert copied is not None
    assert template["mainApplicationFile"] == f"local://{copied[1]}"


def entered(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the entry point of the image."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": PYTHON_PATH,
        "HOME": os.environ["HOME"],
        **variables,
    }
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S * 5, check=False,
    )  # fmt: skip


def test_without_a_word_of_spark_the_entry_point_is_the_command_line() -> None:
    done = entered("files", "--help")
    assert (done.returncode, "Print the valid files" in done.stdout) == (0, True), done.stdout


def test_an_executor_is_started_as_spark_says(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    java.chmod(0o755)
    said = {
        "EXECUTOR_MEMORY": "2g", "DRIVER_URL": "spark://driver", "EXECUTOR_ID": "7", "EXECUTOR_CORES": "3",
        "APPLICATION_ID": "app", "EXECUTOR_POD_IP": "10.0.0.9", "RESOURCE_PROFILE_ID": "0", "EXECUTOR_POD_NAME": "pod",
    }  # fmt: skip
    options = {f"JAVA_OPT_{number}": f"-Da={number}" for number in (10, 9)}
    variables = {f"SPARK_{name}": value for name, value in {**said, **options}.items()}
    done = entered("executor", JAVA_HOME=str(tmp_path), **variables)
    given = done.stdout.splitlines()
    assert given[:4] == ["-Da=9", "-Da=10", "-Xms2g", "-Xmx2g"], done.stdout
    path = Path(given[given.index("-cp") + 1])
    assert any(each.name.startswith("spark-kubernetes") for each in path.parent.iterdir())
    following = dict(zip(given[given.index("-cp") + 3 :: 2], given[given.index("-cp") + 4 :: 2], strict=True))
    assert following == {
        "--driver-url": "spark://driver", "--executor-id": "7", "--cores": "3", "--app-id": "app",
        "--hostname": "10.0.0.9", "--resourceProfileId": "0", "--podName": "pod",
    }  # fmt: skip


def test_a_driver_exports_with_the_spark_that_started_it(tmp_path: Path) -> None:
    """As the operator starts it, but with a master of this machine."""
    conf = tmp_path / "spark.properties"
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        "spark.master": "local[1]", "spark.ui.enabled": "false", "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}", "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }  # fmt: skip
    conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    java_home = provide_java(tmp_path / "java")
    assert java_home is not None
    with BrokerProcess(tmp_path) as broker:
        broker.start()
        assert broker.call("POST", "/v0/topics/t", {"records": [{"data": {"n": n}} for n in range(3)]})[0] == 201
        command = ("export", "--to", str(tmp_path / "lake"), "--topics", "*", "--format", "parquet")
        submitted = ("--properties-file", str(conf), "--class", "org.apache.spark.deploy.PythonRunner")
        done = entered(
            "driver", *submitted, f"local://{PROGRAM}", *command,
            TOPICS_URL=f"http://127.0.0.1:{broker.port}", SPARK_DRIVER_BIND_ADDRESS="127.0.0.1",
            JAVA_HOME=java_home,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    [file] = (tmp_path / "lake").rglob("*.parquet")
    assert parquet.read_table(file).num_rows == 3
    # The session is the one of spark-submit, with its settings.
    [log] = events.iterdir()
    assert '"spark.master":"local[1]"' in log.read_text()
