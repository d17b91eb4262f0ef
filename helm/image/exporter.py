"""The entry point of the exporter's image. As `driver` and `executor` it does what Spark expects of an image in
Kubernetes; with other arguments it is the command line of exports.

Only the standard library, and the programs of the image.
"""

import os
import runpy
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def driver(arguments):
    """The command of a driver. It runs the application that the arguments name, which is this file again."""
    address = os.environ["SPARK_DRIVER_BIND_ADDRESS"]
    settings = (f"spark.driver.bindAddress={address}", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}")
    confs = [part for each in settings for part in ("--conf", each)]
    return ["spark-submit", *confs, "--deploy-mode", "client", *arguments]


def executor():
    """The command of an executor. Spark says in the environment what it is."""
    given = os.environ
    home = given.get("JAVA_HOME")
    options = sorted((name for name in given if name.startswith("SPARK_JAVA_OPT_")), key=lambda name: int(name[15:]))
    jars = Path(find_spec("pyspark").origin).parent / "jars" / "*"
    return [
        str(Path(home, "bin", "java")) if home else "java",
        *(given[name] for name in options),
        f"-Xms{given['SPARK_EXECUTOR_MEMORY']}",
        f"-Xmx{given['SPARK_EXECUTOR_MEMORY']}",
        "-cp",
        os.pathsep.join(filter(None, (given.get("SPARK_CONF_DIR"), str(jars), given.get("SPARK_CLASSPATH")))),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url",
        given["SPARK_DRIVER_URL"],
        "--executor-id",
        given["SPARK_EXECUTOR_ID"],
        "--cores",
        given["SPARK_EXECUTOR_CORES"],
        "--app-id",
        given["SPARK_APPLICATION_ID"],
        "--hostname",
        given["SPARK_EXECUTOR_POD_IP"],
        "--resourceProfileId",
        given["SPARK_RESOURCE_PROFILE_ID"],
        "--podName",
        given["SPARK_EXECUTOR_POD_NAME"],
    ]


def main():
    what, *arguments = sys.argv[1:] or ["--help"]
    if what in ("driver", "executor"):
        command = driver(arguments) if what == "driver" else executor()
        program = shutil.which(command[0])
        if program is None:
            sys.exit(f"There is no program {command[0]} in this image.")
        os.execv(program, command)
    runpy.run_module("topics_broker.pipeline", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
