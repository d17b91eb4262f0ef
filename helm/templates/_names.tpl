{{/* Names, labels and the image: what more than one object has to agree on. */}}

{{- define "topics.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: what is put behind it (-headless, -0, a revision's hash) has to fit into 63. */}}
{{- define "topics.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "topics.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "topics.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "topics.headless" -}}
{{- printf "%s-headless" (include "topics.fullname" .) -}}
{{- end -}}

{{/* What all pods of a release have in common. It never changes: selectors are immutable. */}}
{{- define "topics.releaseLabels" -}}
app.kubernetes.io/name: {{ include "topics.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The broker's pods, and no others. */}}
{{- define "topics.selectorLabels" -}}
{{ include "topics.releaseLabels" . }}
app.kubernetes.io/component: broker
{{- end -}}

{{/* Labels of every object, without the component. */}}
{{- define "topics.labels" -}}
{{ include "topics.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "topics.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "topics.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "topics.image" -}}
{{- include "topics.imageOf" (dict "image" .Values.image "root" .) -}}
{{- end -}}

{{/* Takes image (repository, tag, digest) and root. */}}
{{- define "topics.imageOf" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the keys: somebody else's, or the generated one. */}}
{{- define "topics.secretName" -}}
{{- .Values.auth.existingSecret | default (printf "%s-keys" (include "topics.fullname" .)) -}}
{{- end -}}

{{- define "topics.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end -}}

{{/* Where Kafka clients are told to connect to. */}}
{{- define "topics.kafkaAddress" -}}
{{- .Values.kafka.advertised | default (printf "%s.%s.svc:%d" (include "topics.fullname" .) .Release.Namespace (int .Values.kafka.port)) -}}
{{- end -}}

{{/* Where HTTP clients that go to the cells are told to find cell 0. */}}
{{- define "topics.cellAddress" -}}
{{- .Values.cellPorts.advertised | default (printf "%s.%s.svc:%d" (include "topics.fullname" .) .Release.Namespace (int .Values.cellPorts.port)) -}}
{{- end -}}

{{/* Where clients in the cluster find the broker. */}}
{{- define "topics.url" -}}
{{- printf "%s://%s.%s.svc:%d" (include "topics.scheme" .) (include "topics.fullname" .) .Release.Namespace (int .Values.service.port) -}}
{{- end -}}
