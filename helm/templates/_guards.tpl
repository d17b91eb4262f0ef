{{/* Values that contradict each other are refused with a sentence, before anything is installed. */}}

{{- define "topics.guards" -}}
{{- $cluster := not (empty .Values.store.bucket) -}}
{{- if lt (int .Values.replicaCount) 1 -}}
{{- fail (printf "replicaCount is %d, but must be 1 or more (to stop it for a while: kubectl scale)." (int .Values.replicaCount)) -}}
{{- end -}}
{{- if and (gt (int .Values.replicaCount) 1) (not $cluster) -}}
{{- fail (printf "replicaCount is %d, but store.bucket is empty: brokers with volumes do not replicate each other, so each would hold a part of the records. Set store.bucket to make a cluster, or install another release." (int .Values.replicaCount)) -}}
{{- end -}}
{{- if $cluster -}}
{{- if gt (int .Values.cells) 1 -}}
{{- fail "cells is set with store.bucket: store.cells says how many cells a cluster has." -}}
{{- end -}}
{{- if lt (int .Values.store.cells) (int .Values.replicaCount) -}}
{{- fail (printf "store.cells is %d, but replicaCount is %d: a node without a cell has nothing to do." (int .Values.store.cells) (int .Values.replicaCount)) -}}
{{- end -}}
{{- if or .Values.cold.url .Values.cold.existingClaim -}}
{{- fail "cold is set with store.bucket: the cold tier of a cluster is its bucket: store.cache.recentOnly says whether nodes have only newer segments." -}}
{{- end -}}
{{- if .Values.persistence.existingClaim -}}
{{- fail "persistence.existingClaim is set with store.bucket: the nodes of a cluster cannot share a volume, and need none." -}}
{{- end -}}
{{- if .Values.backup.existingClaim -}}
{{- fail "backup.existingClaim is set with store.bucket: a cluster is backed up by copying its bucket (docs/cluster.md)." -}}
{{- end -}}
{{- range $name, $address := dict "kafka.advertised" .Values.kafka.advertised "cellPorts.advertised" .Values.cellPorts.advertised -}}
{{- if and $address (not (contains "$(TOPICS_NODE)" $address)) -}}
{{- fail (printf "%s is %s for all nodes of a cluster: clients would not find the owner of a cell. Put $(TOPICS_NODE) where the name of the pod belongs." $name $address) -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- range $name, $set := dict "store.secretRef" .Values.store.secretRef "store.clusterSecret.existingSecret" .Values.store.clusterSecret.existingSecret "store.cache.persistent" .Values.store.cache.persistent "podServices.enabled" .Values.podServices.enabled -}}
{{- if $set -}}
{{- fail (printf "%s is set, but store.bucket is empty: it is for clusters." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with (lookup "apps/v1" "StatefulSet" .Release.Namespace (include "topics.fullname" .)).spec -}}
{{- if ne (get .selector.matchLabels "topics-broker/store") (get (include "topics.statefulLabels" $ | fromYaml) "topics-broker/store") -}}
{{- fail (printf "The StatefulSet %s runs with another store.bucket (or without one). In another bucket the data would be missing: see Clusters in the chart's README." (include "topics.fullname" $)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.auth.existingSecret (not .Values.auth.enabled) -}}
{{- fail "auth.existingSecret is set, but auth.enabled is false: the keys in it would not be asked for." -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) (not .Values.certificate.enabled) -}}
{{- fail "tls.enabled is true, but tls.existingSecret does not say which Secret has the certificate (tls.crt) and its key (tls.key); certificate.enabled asks cert-manager for one." -}}
{{- end -}}
{{- if and .Values.tls.existingSecret (not .Values.tls.enabled) -}}
{{- fail "tls.existingSecret is set, but tls.enabled is false: the broker would serve in the plain." -}}
{{- end -}}
{{- if and .Values.certificate.enabled (not .Values.tls.enabled) -}}
{{- fail "certificate.enabled is true, but tls.enabled is false: the broker would serve in the plain." -}}
{{- end -}}
{{- if and .Values.certificate.enabled (not .Values.certificate.issuerRef.name) -}}
{{- fail "certificate.enabled is true, but certificate.issuerRef.name does not say who signs it." -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled is true, but httpRoute.parentRefs names no Gateway." -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.auth.enabled) (not .Values.httpRoute.allowWithoutAuth) -}}
{{- fail "httpRoute.enabled is true and auth.enabled is false: whoever reaches the Gateway could do everything. Set httpRoute.allowWithoutAuth if something before it asks who they are." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled is true, but ingress.hosts names no host." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.auth.enabled) (not .Values.ingress.allowWithoutAuth) -}}
{{- fail "ingress.enabled is true and auth.enabled is false: whoever reaches the Ingress could do everything. Set ingress.allowWithoutAuth if something before it asks who they are." -}}
{{- end -}}
{{- if and .Values.cold.url .Values.cold.existingClaim -}}
{{- fail "cold.url and cold.existingClaim are both set: older segments move to one place." -}}
{{- end -}}
{{- if and .Values.cold.secretRef (not .Values.cold.url) -}}
{{- fail "cold.secretRef has credentials for an object store, but cold.url does not name one." -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim (not .Values.persistence.enabled) -}}
{{- fail "persistence.existingClaim is set, but persistence.enabled is false: the claim would not be used." -}}
{{- end -}}
{{- if and .Values.backup.schedule (not .Values.backup.existingClaim) -}}
{{- fail "backup.schedule is set, but backup.existingClaim does not say where backups go." -}}
{{- end -}}
{{- if and (or .Values.export.schedule .Values.export.compact.schedule) (hasPrefix "/" .Values.export.to) (not .Values.export.existingClaim) -}}
{{- fail (printf "export.to is the folder %s, but export.existingClaim does not say what is mounted at /export." .Values.export.to) -}}
{{- end -}}
{{- if and (or .Values.export.schedule .Values.export.compact.schedule) (hasPrefix "/" .Values.export.to) (not (hasPrefix "/export" .Values.export.to)) -}}
{{- fail (printf "export.to is %s, which is no folder of /export, where the claim is mounted." .Values.export.to) -}}
{{- end -}}
{{- if and .Values.export.sparkOperator.enabled (not .Values.export.schedule) -}}
{{- fail "export.sparkOperator.enabled is true, but export.schedule does not say when to export." -}}
{{- end -}}
{{- $stop := ternary 50 20 $cluster -}}
{{- if lt (int (mul .Values.terminationGracePeriodSeconds 1000)) (int (add .Values.drainMs (mul $stop 1000))) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, too short for drainMs of %d: beside the drain, requests in flight have 10 s, and the last snapshot needs some%s; leave %d s." (int .Values.terminationGracePeriodSeconds) (int .Values.drainMs) (ternary "; before it, a node gives its cells to others, for 30 s at most" "" $cluster) $stop) -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.nodePort is set, but service.type is ClusterIP, which has none." -}}
{{- end -}}
{{- if and .Values.kafka.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "kafka.nodePort is set, but service.type is ClusterIP, which has none." -}}
{{- end -}}
{{- $ports := list -}}
{{- range include "topics.ports" (dict "root" . "all" true) | fromJsonArray -}}
{{- $ports = append $ports (int .service) -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "service.port, kafka.port and cellPorts.port, with one more for each further cell, are the ports %s: one Service cannot have a port twice." (join ", " $ports)) -}}
{{- end -}}
{{- if and .Values.cellPorts.enabled (not $cluster) (eq (int .Values.cells) 1) -}}
{{- fail "cellPorts.enabled is true, but cells is 1: all requests go to the one process at service.port." -}}
{{- end -}}
{{- if and .Values.service.loadBalancerSourceRanges (ne .Values.service.type "LoadBalancer") -}}
{{- fail "service.loadBalancerSourceRanges is set, but service.type is not LoadBalancer." -}}
{{- end -}}
{{- if and .Values.networkPolicy.egress.rules (not .Values.networkPolicy.egress.restricted) -}}
{{- fail "networkPolicy.egress.rules are set, but networkPolicy.egress.restricted is false: everything is allowed." -}}
{{- end -}}
{{- if and .Values.networkPolicy.egress.restricted .Values.cold.url (not .Values.networkPolicy.egress.rules) -}}
{{- fail "networkPolicy.egress.restricted is true and networkPolicy.egress.rules are empty: the object store of cold.url could not be reached." -}}
{{- end -}}
{{- if and .Values.networkPolicy.egress.restricted $cluster (not .Values.networkPolicy.egress.rules) -}}
{{- fail "networkPolicy.egress.restricted is true and networkPolicy.egress.rules are empty: the object store of store.bucket could not be reached." -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if hasPrefix "TOPICS_" (upper .name) -}}
{{- fail (printf "extraEnv has %s: settings of the broker go to settings, where they are checked." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
