{{/* The settings of the broker: TOPICS_* variables as a map of strings. */}}

{{/* The port that the container listens on; Services and probes call it by its name, http. */}}
{{- define "topics.containerPort" -}}4000{{- end -}}

{{/* The same for Kafka clients, called kafka. */}}
{{- define "topics.kafkaPort" -}}9092{{- end -}}

{{/* The port of cell 0 for HTTP clients that go to the cells, called cell-0; that of cell i is this + i, called cell-i. */}}
{{- define "topics.cellPort" -}}4100{{- end -}}

{{/* The port for other nodes of a cluster, called cluster. */}}
{{- define "topics.clusterPort" -}}4300{{- end -}}

{{/* The name of the port of a cell for Kafka clients. That of cell 0, or of the only one, is kafka. */}}
{{- define "topics.kafkaPortName" -}}
{{- if . -}}{{- printf "kafka-%d" (int .) -}}{{- else -}}kafka{{- end -}}
{{- end -}}

{{/* Numbers come out of YAML as floats, and large ones would be printed as 6.7108864e+07. */}}
{{- define "topics.settingValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) (float64 .)) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Names that the broker answers to; nothing where it answers to every name. Probes and Prometheus come by address. */}}
{{- define "topics.allowedHosts" -}}
{{- $hosts := .Values.allowedHosts -}}
{{- if or $hosts (not .Values.auth.enabled) -}}
{{- range $service := list (include "topics.fullname" .) (include "topics.headless" .) -}}
{{- $name := printf "%s.%s" $service $.Release.Namespace -}}
{{- range $domain := list "" ".svc" ".svc.cluster.local" -}}
{{- $hosts = append $hosts (print $name $domain) -}}
{{- $hosts = append $hosts (print "*." $name $domain) -}}
{{- end -}}
{{- $hosts = append $hosts $service -}}
{{- end -}}
{{- if .Values.ingress.enabled -}}
{{- $hosts = concat $hosts .Values.ingress.hosts -}}
{{- end -}}
{{- if .Values.httpRoute.enabled -}}
{{- $hosts = concat $hosts .Values.httpRoute.hostnames -}}
{{- end -}}
{{- join "," (concat (list "localhost") $hosts | uniq) -}}
{{- end -}}
{{- end -}}

{{- define "topics.environment" -}}
{{- $all := dict
  "TOPICS_HOST" .Values.listenAddress
  "TOPICS_PORT" (include "topics.containerPort" .)
  "TOPICS_DATA_DIR" "/data/topics"
  "TOPICS_DRAIN_MS" (include "topics.settingValue" .Values.drainMs)
  "TOPICS_TRUST_PAGE_CACHE" (ternary "1" "0" (and (not (empty .Values.store.bucket)) (not .Values.store.cache.persistent)))
  "TOPICS_ON_STORAGE_FAILED" "exit" -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $all "TOPICS_API_KEYS_FILE" "/etc/topics/keys/api-keys" -}}
{{- else -}}
{{- $_ := set $all "TOPICS_ALLOW_INSECURE_NO_AUTH" "1" -}}
{{- end -}}
{{- with include "topics.allowedHosts" . -}}
{{- $_ := set $all "TOPICS_ALLOWED_HOSTS" . -}}
{{- end -}}
{{- with .Values.corsOrigins -}}
{{- $_ := set $all "TOPICS_CORS_ORIGINS" (join "," .) -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $all "TOPICS_TLS_CERT" "/etc/topics/tls/tls.crt" -}}
{{- $_ := set $all "TOPICS_TLS_KEY" "/etc/topics/tls/tls.key" -}}
{{- end -}}
{{- if .Values.cold.url -}}
{{- $_ := set $all "TOPICS_COLD_DIR" .Values.cold.url -}}
{{- else if .Values.cold.existingClaim -}}
{{- $_ := set $all "TOPICS_COLD_DIR" "/cold" -}}
{{- end -}}
{{- if .Values.backup.existingClaim -}}
{{- $_ := set $all "TOPICS_BACKUP_DIR" "/backup" -}}
{{- end -}}
{{- if .Values.kafka.enabled -}}
{{- $_ := set $all "TOPICS_KAFKA_PORT" (include "topics.kafkaPort" .) -}}
{{- end -}}
{{- if .Values.cellPorts.enabled -}}
{{- $_ := set $all "TOPICS_CELL_PORTS" (include "topics.cellPort" .) -}}
{{- end -}}
{{- if .Values.store.bucket -}}
{{- $_ := set $all "TOPICS_COLD_DIR" (ternary "bucket" "" .Values.store.cache.recentOnly) -}}
{{- $_ := set $all "TOPICS_CLUSTER_URL" .Values.store.bucket -}}
{{- $_ := set $all "TOPICS_CLUSTER_HOST" .Values.listenAddress -}}
{{- $_ := set $all "TOPICS_CLUSTER_PORT" (include "topics.clusterPort" .) -}}
{{- $_ := set $all "TOPICS_GATEWAYS" (include "topics.settingValue" .Values.gateways) -}}
{{- else -}}
{{- $all = merge $all (include "topics.advertised" . | fromYaml) -}}
{{- if gt (int .Values.cells) 1 -}}
{{- $_ := set $all "TOPICS_CELLS" (include "topics.settingValue" .Values.cells) -}}
{{- $_ := set $all "TOPICS_GATEWAYS" (include "topics.settingValue" .Values.gateways) -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- $_ := set $all $name (include "topics.settingValue" $value) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Addresses that clients are told, as a map. Those of a node of a cluster have its name in them. */}}
{{- define "topics.advertised" -}}
{{- $all := dict -}}
{{- if .Values.kafka.enabled -}}
{{- $_ := set $all "TOPICS_KAFKA_ADVERTISED" (include "topics.kafkaAddress" .) -}}
{{- end -}}
{{- if .Values.cellPorts.enabled -}}
{{- $_ := set $all "TOPICS_CELL_ADVERTISED" (include "topics.cellAddress" .) -}}
{{- end -}}
{{- if .Values.store.bucket -}}
{{- $_ := set $all "TOPICS_ADVERTISED" (printf "%s:%s" (include "topics.nodeHost" .) (include "topics.containerPort" .)) -}}
{{- $_ := set $all "TOPICS_CLUSTER_ADVERTISED" (printf "%s:%s" (include "topics.nodeHost" .) (include "topics.clusterPort" .)) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* Variables of the broker's container: those of the user, and what each node of a cluster has for itself. */}}
{{- define "topics.variables" -}}
{{- with .Values.extraEnv }}
{{- toYaml . }}
{{ end }}
{{- if .Values.store.bucket -}}
- name: TOPICS_NODE
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- range $name, $value := include "topics.advertised" . | fromYaml }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
- name: TOPICS_CLUSTER_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ include "topics.clusterSecret" . }}
      key: {{ .Values.store.clusterSecret.key }}
{{- end }}
{{- end -}}

{{/* Credentials of the object store: of the cold tier, or of a cluster. */}}
{{- define "topics.storeSecretRef" -}}
{{- .Values.store.secretRef | default .Values.cold.secretRef -}}
{{- end -}}
