"""The schema of the chart's values. The part about settings is made from the model, and the rest is written here.

`python -m tests.support.chart_schema` writes it to helm/values.schema.json. A test compares the two.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter

from broker.settings import PREFIX, Settings

FILE = Path(__file__).resolve().parents[2] / "helm" / "values.schema.json"

#: What the chart sets itself: where to listen, files that it mounts, and settings that follow from Kubernetes.
BY_THE_CHART = frozenset(
    PREFIX + name.upper()
    for name in (
        "host",
        "port",
        "port_file",
        "data_dir",
        "backup_dir",
        "cold_dir",
        "tls_cert",
        "tls_key",
        "api_keys",
        "api_keys_file",
        "allow_insecure_no_auth",
        # Without keys, this includes the names of the Services.
        "allowed_hosts",
        "cors_origins",
        # Probes have no key.
        "probe_auth",
        # Values of their own: each cell has ports.
        "cells",
        "gateways",
        "cell_ports",
        "cell_advertised",
        "drain_ms",
        "on_storage_failed",
        "trust_page_cache",
        # A cluster has the same bucket and secret at all nodes, and each has a name and addresses of its own.
        "cluster_url",
        "node",
        "advertised",
        "cluster_host",
        "cluster_port",
        "cluster_advertised",
        "cluster_secret",
        "cluster_cert",
        "cluster_key",
        "cluster_ca",
        # A port that only the pod has cannot be reached.
        "kafka_port",
        "kafka_host",
        "kafka_port_file",
        "kafka_advertised",
    )
)

LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

BOOLEAN = {"type": "boolean"}
TEXT = {"type": "string"}
PORT = {"type": "integer", "minimum": 1, "maximum": 65_535}
TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}}
#: Labels and annotations.
ADDRESS = {"type": "string", "pattern": "^([^ :]+:[0-9]+|\\[[0-9a-fA-F:.]+\\]:[0-9]+)?$"}
#: Ports of cells follow each other, so a pod has room for so many.
MOST_CELLS = 64
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
#: Labels that the chart sets itself, and selects by.
OF_THE_CHART = (
    "^(app[.]kubernetes[.]io/(name|instance|component|version|managed-by)|helm[.]sh/chart|topics-broker/store)$"
)
LABELS = {
    "type": "object",
    "additionalProperties": {
        "type": "string",
        "pattern": "^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$",
        "maxLength": 63,
    },
    "propertyNames": {"not": {"pattern": OF_THE_CHART}},
}
#: A name of an object; empty = none.
NAME = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
LABEL = {"type": "string", "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 40}
KEY_OF_SECRET = {"type": "string", "pattern": "^[-._a-zA-Z0-9]+$"}
#: A host, perhaps with a port and a path; no scheme.
REGISTRY = {"type": "string", "pattern": "^[^/ ]*(/[^/ ]+)*$"}
QUANTITY = {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"}
#: In the form of TOPICS_ALLOWED_HOSTS and TOPICS_CORS_ORIGINS.
HOST = {"type": "string", "pattern": "^([*]|([*][.])?[A-Za-z0-9_.-]+)$"}
ORIGIN = {"type": "string", "pattern": "^([*]|[A-Za-z][A-Za-z0-9+.-]*://[^/,\\s]+)$"}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
#: A time that the pipeline keeps old versions for.
DAYS = {"type": "string", "pattern": "^[1-9][0-9]*d$"}
SECONDS = {"type": "integer", "minimum": 60}
COUNT = {"type": "integer", "minimum": 1}
JAVA_MEMORY = {"type": "string", "pattern": "^[0-9]+[kmgt]$"}
#: Parts of Kubernetes objects that are passed on unchanged. Kubernetes checks them.
OBJECTS = {"type": "array", "items": {"type": "object"}}
OBJECT = {"type": "object"}


#: In the form of cron; empty = never.
SCHEDULE = {"type": "string", "pattern": "^(@[a-z]+|(\\S+ ){4}\\S+)?$"}


def one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": text, **schema}


def strict(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these properties and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def setting(name: str) -> dict[str, Any]:
    """The schema of a setting, from the model: type, bounds, choices."""
    field = Settings.model_fields[name]
    found = TypeAdapter(Annotated[field.rebuild_annotation(), field]).json_schema()
    if "anyOf" in found:  # the setting may be unset
        found |= next(each for each in found["anyOf"] if each != {"type": "null"})
    if "$ref" in found:
        found |= found["$defs"][found["$ref"].rpartition("/")[2]]
    kept = {key: found[key] for key in ("type", "enum", *LIMITS) if key in found}
    return described(kept, field.description or "")


def settings() -> dict[str, Any]:
    """Every setting that is left to the user, by its variable."""
    names = {PREFIX + name.upper(): name for name in Settings.model_fields}
    return strict(**{variable: setting(name) for variable, name in names.items() if variable not in BY_THE_CHART})


def resources() -> dict[str, Any]:
    amounts = {"type": "object", "additionalProperties": QUANTITY}
    return strict(requests=amounts, limits=amounts)


def image(**more: dict[str, Any]) -> dict[str, Any]:
    return strict(
        registry=REGISTRY,
        repository={"type": "string", "minLength": 1},
        tag={"type": "string", "pattern": "^[-._A-Za-z0-9]*$", "maxLength": 128},
        digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        pullPolicy=one_of("Always", "IfNotPresent", "Never"),
        **more,
    )


def storage() -> dict[str, dict[str, Any]]:
    return {
        "store": strict(
            bucket={"type": "string", "pattern": "^((s3|gs|az)://[^@?#]+)?$"},
            cells={"type": "integer", "minimum": 1, "maximum": MOST_CELLS},
            init=BOOLEAN,
            secretRef=NAME,
            clusterSecret=strict(existingSecret=NAME, key=KEY_OF_SECRET),
            cache=strict(
                persistent=BOOLEAN,
                sizeLimit={**QUANTITY, "pattern": f"{QUANTITY['pattern']}|^$"},
                recentOnly=BOOLEAN,
            ),
        ),
        "persistence": strict(
            enabled=BOOLEAN,
            existingClaim=NAME,
            storageClass=NAME,
            size=QUANTITY,
            accessModes={
                "type": "array",
                "minItems": 1,
                "items": one_of("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"),
            },
            whenDeleted=one_of("Retain", "Delete"),
            annotations=STRINGS,
        ),
        "cold": strict(
            url={"type": "string", "pattern": "^((s3|gs|az)://.+)?$"},
            secretRef=NAME,
            existingClaim=NAME,
        ),
        "backup": strict(
            existingClaim=NAME,
            schedule=SCHEDULE,
            folder={"type": "string", "pattern": "^[A-Za-z0-9][-_A-Za-z0-9]*$"},
            includeCold=BOOLEAN,
            alertAfterSeconds=SECONDS,
        ),
        "export": strict(
            schedule=SCHEDULE,
            image=image(),
            topics={**TEXTS, "minItems": 1},
            to={"type": "string", "pattern": "^(/.*|(s3|gs|az)://.+)$"},
            existingClaim=NAME,
            secretRef=NAME,
            format=one_of("", "delta", "iceberg", "parquet", "json"),
            options=TEXTS,
            maxLag={"type": "integer", "minimum": 0},
            compact=strict(schedule=SCHEDULE, vacuum=strict(enabled=BOOLEAN, retain=DAYS)),
            alertAfterSeconds=SECONDS,
            sparkOperator=strict(
                enabled=BOOLEAN,
                sparkVersion={"type": "string", "pattern": "^[0-9]+[.][0-9.]+"},
                mainApplicationFile={"type": "string", "minLength": 1},
                serviceAccount={**NAME, "minLength": 1},
                driver=strict(cores=COUNT, memory=JAVA_MEMORY),
                executor=strict(instances=COUNT, cores=COUNT, memory=JAVA_MEMORY),
                sparkConf=STRINGS,
            ),
            nodeSelector=STRINGS,
            tolerations=OBJECTS,
            affinity=OBJECT,
            resources=resources(),
        ),
    }


def network() -> dict[str, dict[str, Any]]:
    return {
        "service": strict(
            type=one_of("ClusterIP", "NodePort", "LoadBalancer"),
            port=PORT,
            nodePort={"type": "integer", "minimum": 0, "maximum": 65_535},
            ipFamilyPolicy=one_of("", "SingleStack", "PreferDualStack", "RequireDualStack"),
            loadBalancerSourceRanges=TEXTS,
            annotations=STRINGS,
        ),
        "kafka": strict(
            enabled=BOOLEAN,
            port=PORT,
            nodePort={"type": "integer", "minimum": 0, "maximum": 65_535},
            advertised=ADDRESS,
        ),
        "ingress": strict(
            enabled=BOOLEAN,
            className=NAME,
            hosts=TEXTS,
            tls={"type": "array", "items": strict(hosts=TEXTS, secretName=NAME)},
            allowWithoutAuth=BOOLEAN,
            annotations=STRINGS,
        ),
        "podServices": strict(
            enabled=BOOLEAN,
            type=one_of("LoadBalancer", "ClusterIP"),
            loadBalancerSourceRanges=TEXTS,
            annotations=STRINGS,
        ),
        "httpRoute": strict(
            enabled=BOOLEAN,
            parentRefs=OBJECTS,
            hostnames=TEXTS,
            allowWithoutAuth=BOOLEAN,
            filters=OBJECTS,
            timeouts=STRINGS,
            annotations=STRINGS,
        ),
        "certificate": strict(
            enabled=BOOLEAN,
            issuerRef=strict(name=NAME, kind={"type": "string", "minLength": 1}, group={"type": "string"}),
            dnsNames=TEXTS,
            duration={**DURATION, "pattern": f"{DURATION['pattern']}|^$"},
            renewBefore={**DURATION, "pattern": f"{DURATION['pattern']}|^$"},
        ),
        "networkPolicy": strict(
            enabled=BOOLEAN,
            clients=OBJECTS,
            egress=strict(restricted=BOOLEAN, rules=OBJECTS),
        ),
        "podDisruptionBudget": strict(enabled=BOOLEAN),
    }


def metrics() -> dict[str, Any]:
    return strict(
        serviceMonitor=strict(
            enabled=BOOLEAN,
            interval=DURATION,
            scrapeTimeout=DURATION,
            labels=STRINGS,
            relabelings=OBJECTS,
            metricRelabelings=OBJECTS,
        ),
        prometheusRule=strict(enabled=BOOLEAN, labels=STRINGS),
        dashboard=strict(enabled=BOOLEAN, labels=STRINGS, annotations=STRINGS),
    )


def probe(*, most_successes: int | None = None) -> dict[str, Any]:
    seconds = {"type": "integer", "minimum": 1}
    successes = seconds if most_successes is None else {**seconds, "maximum": most_successes}
    return strict(
        initialDelaySeconds={"type": "integer", "minimum": 0},
        periodSeconds=seconds,
        timeoutSeconds=seconds,
        failureThreshold=seconds,
        successThreshold=successes,
    )


def pod() -> dict[str, dict[str, Any]]:
    variable = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}}}
    user = {"type": "integer", "minimum": 1}
    users = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), user)
    return {
        "podSecurityContext": {"type": "object", "properties": users},
        "updateStrategy": {"type": "object", "properties": {"type": one_of("RollingUpdate", "OnDelete")}},
        "lifecycle": OBJECT,
        # Kubernetes takes no other number for these two.
        **{f"{name}Probe": probe(most_successes=1) for name in ("startup", "liveness")},
        "readinessProbe": probe(),
        "initContainers": OBJECTS,
        "extraContainers": OBJECTS,
        "extraObjects": {"type": "array", "items": {"type": ["object", "string"]}},
        "topologySpreadConstraints": OBJECTS,
        "serviceAccount": strict(create=BOOLEAN, name=NAME, automountToken=BOOLEAN, annotations=STRINGS),
        "resources": resources(),
        "extraEnv": {"type": "array", "items": variable},
        "extraVolumes": OBJECTS,
        "extraVolumeMounts": OBJECTS,
        "podLabels": LABELS,
        "podAnnotations": STRINGS,
        "priorityClassName": NAME,
        "nodeSelector": STRINGS,
        "tolerations": OBJECTS,
        "affinity": OBJECT,
    }


def schema() -> dict[str, Any]:
    """The whole of values.schema.json."""
    of_all = {
        "imageRegistry": REGISTRY,
        "imagePullSecrets": {
            "type": "array",
            "items": {"type": ["string", "object"], "required": ["name"], "properties": {"name": TEXT}},
        },
    }
    names_in_secret = strict(file=KEY_OF_SECRET, admin=KEY_OF_SECRET, metrics=KEY_OF_SECRET)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart topics-broker",
        **strict(
            nameOverride=LABEL,
            fullnameOverride=LABEL,
            commonLabels=LABELS,
            # The chart itself says in a sentence which number is allowed.
            replicaCount={"type": "integer"},
            cells={"type": "integer", "minimum": 1, "maximum": MOST_CELLS},
            gateways={"type": "integer", "minimum": 1, "maximum": 64},
            cellPorts=strict(enabled=BOOLEAN, port=PORT, advertised=ADDRESS),
            image=image(pullSecrets=TEXTS),
            settings=settings(),
            listenAddress=one_of("0.0.0.0", "::"),
            allowedHosts={"type": "array", "items": HOST},
            corsOrigins={"type": "array", "items": ORIGIN},
            drainMs={"type": "integer", "minimum": 0},
            terminationGracePeriodSeconds={"type": "integer", "minimum": 1},
            auth=strict(enabled=BOOLEAN, existingSecret=NAME, secretKeys=names_in_secret),
            tls=strict(enabled=BOOLEAN, existingSecret=NAME, caKey={"type": "string", "pattern": "^[-._a-zA-Z0-9]*$"}),
            **storage(),
            **network(),
            metrics=metrics(),
            **pod(),
            # What a parent chart passes to all its parts; other charts use more of it. `enabled` is its switch.
            **{"global": {"type": "object", "properties": of_all}, "enabled": BOOLEAN},
        ),
    }


def written() -> str:
    """The bytes of the file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written())
