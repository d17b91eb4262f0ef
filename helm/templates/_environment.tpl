{{/* The settings of the broker: TOPICS_* variables as a map of strings. */}}

{{/* The port that the container listens on; Services and probes call it by its name, http. */}}
{{- define "topics.containerPort" -}}4000{{- end -}}

{{/* The same for Kafka clients, called kafka. */}}
{{- define "topics.kafkaPort" -}}9092{{- end -}}

{{/* Numbers come out of YAML as floats, and large ones would be printed as 6.7108864e+07. */}}
{{- define "topics.settingValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) (float64 .)) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- define "topics.environment" -}}
{{- $all := dict
  "TOPICS_HOST" .Values.listenAddress
  "TOPICS_PORT" (include "topics.containerPort" .)
  "TOPICS_DATA_DIR" "/data/topics"
  "TOPICS_DRAIN_MS" (include "topics.settingValue" .Values.drainMs)
  "TOPICS_TRUST_PAGE_CACHE" "0"
  "TOPICS_ON_STORAGE_FAILED" "exit" -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $all "TOPICS_API_KEYS_FILE" "/etc/topics/keys/api-keys" -}}
{{- else -}}
{{- $_ := set $all "TOPICS_ALLOW_INSECURE_NO_AUTH" "1" -}}
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
{{- $_ := set $all "TOPICS_KAFKA_ADVERTISED" (include "topics.kafkaAddress" .) -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- $_ := set $all $name (include "topics.settingValue" $value) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}
