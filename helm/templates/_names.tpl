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

{{/* Those of the StatefulSet, which Kubernetes never lets change. In a cluster, the bucket is among them: an upgrade with
another bucket would make another cluster, without the data, node by node. It is refused. */}}
{{- define "topics.statefulLabels" -}}
{{ include "topics.selectorLabels" . }}
{{- with .Values.store.bucket }}
topics-broker/store: {{ sha256sum . | trunc 16 | quote }}
{{- end }}
{{- end -}}

{{/* Labels of every object, without the component. */}}
{{- define "topics.labels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
{{ include "topics.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Those and more, which a value says for this object alone: takes root, and more. A label may be in both, and YAML has each
only once. */}}
{{- define "topics.moreLabels" -}}
{{- toYaml (merge dict (.more | default dict) (include "topics.labels" .root | fromYaml)) -}}
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

{{/* Takes image (registry, repository, tag, digest) and root. */}}
{{- define "topics.imageOf" -}}
{{- $repository := .image.repository -}}
{{- if .root.Values.global.imageRegistry -}}
{{- /* As container engines tell a registry from a name: it has a dot or a port. */ -}}
{{- $repository = regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "" -}}
{{- end -}}
{{- with .root.Values.global.imageRegistry | default .image.registry -}}
{{- printf "%s/" . -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Names of Secrets for the registries, of the chart and of a parent chart, as JSON: a name, or an object with one. */}}
{{- define "topics.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.image.pullSecrets | default list) -}}
{{- if kindIs "string" . -}}
{{- $names = append $names . -}}
{{- else -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- toJson (uniq $names) -}}
{{- end -}}

{{- define "topics.imagePullSecrets" -}}
{{- with include "topics.pullSecrets" . | fromJsonArray -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
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
{{- if .Values.kafka.advertised -}}
{{- .Values.kafka.advertised -}}
{{- else if .Values.store.bucket -}}
{{- printf "%s:%s" (include "topics.nodeHost" .) (include "topics.kafkaPort" .) -}}
{{- else -}}
{{- printf "%s.%s.svc:%d" (include "topics.fullname" .) .Release.Namespace (int .Values.kafka.port) -}}
{{- end -}}
{{- end -}}

{{/* Where HTTP clients that go to the cells are told to find cell 0. */}}
{{- define "topics.cellAddress" -}}
{{- if .Values.cellPorts.advertised -}}
{{- .Values.cellPorts.advertised -}}
{{- else if .Values.store.bucket -}}
{{- printf "%s:%s" (include "topics.nodeHost" .) (include "topics.cellPort" .) -}}
{{- else -}}
{{- printf "%s.%s.svc:%d" (include "topics.fullname" .) .Release.Namespace (int .Values.cellPorts.port) -}}
{{- end -}}
{{- end -}}

{{/* The name of a node of a cluster in the DNS. Kubernetes puts the pod's name for the variable. */}}
{{- define "topics.nodeHost" -}}
{{- printf "$(TOPICS_NODE).%s.%s.svc" (include "topics.headless" .) .Release.Namespace -}}
{{- end -}}

{{/* How many cells have ports. */}}
{{- define "topics.cells" -}}
{{- ternary .Values.store.cells .Values.cells (not (empty .Values.store.bucket)) | int -}}
{{- end -}}

{{/* The Secret with the certificate: somebody else's, or the one that cert-manager makes. */}}
{{- define "topics.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "topics.fullname" .)) -}}
{{- end -}}

{{/* The Secret by which the nodes of a cluster know each other. */}}
{{- define "topics.clusterSecret" -}}
{{- .Values.store.clusterSecret.existingSecret | default (printf "%s-cluster" (include "topics.fullname" .)) -}}
{{- end -}}

{{/* Where clients in the cluster find the broker. */}}
{{- define "topics.url" -}}
{{- printf "%s://%s.%s.svc:%d" (include "topics.scheme" .) (include "topics.fullname" .) .Release.Namespace (int .Values.service.port) -}}
{{- end -}}
