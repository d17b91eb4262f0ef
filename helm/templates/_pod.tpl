{{/* Parts of pods, and how they are replaced: security contexts, probes, ports. */}}

{{- define "topics.podSecurity" -}}
{{- toYaml .Values.podSecurityContext -}}
{{- end -}}

{{/* Kubernetes fills in rollingUpdate.partition, and refuses it beside OnDelete. An upgrade takes it away that patches the
object, because of the null; and one that applies it on the server, because the chart had written it. */}}
{{- define "topics.updateStrategy" -}}
{{- $strategy := deepCopy (.Values.updateStrategy | default dict) -}}
{{- if eq (get $strategy "type") "OnDelete" -}}
{{- $_ := set $strategy "rollingUpdate" nil -}}
{{- else -}}
{{- $_ := set $strategy "rollingUpdate" (merge dict (get $strategy "rollingUpdate" | default dict) (dict "partition" 0)) -}}
{{- end -}}
{{- toYaml $strategy -}}
{{- end -}}

{{- define "topics.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{/* What /data is: emptyDir, claim (one that exists) or template (one of the StatefulSet). */}}
{{- define "topics.dataVolume" -}}
{{- if .Values.store.bucket -}}
{{- ternary "template" "emptyDir" .Values.store.cache.persistent -}}
{{- else if not .Values.persistence.enabled -}}
emptyDir
{{- else -}}
{{- ternary "claim" "template" (not (empty .Values.persistence.existingClaim)) -}}
{{- end -}}
{{- end -}}

{{/* Takes root, path, and numbers (how often, how long). */}}
{{- define "topics.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "topics.scheme" .root | upper }}
{{ toYaml .numbers }}
{{- end -}}

{{/* Ports of the broker as a JSON list of {name, port (in the pod), service (in Services), nodePort, http}. Takes root,
all (also those of cells), cluster (also that for other nodes). */}}
{{- define "topics.ports" -}}
{{- $values := .root.Values -}}
{{- $cells := until (include "topics.cells" .root | int) -}}
{{- $kafka := include "topics.kafkaPort" .root -}}
{{- $cell0 := include "topics.cellPort" .root -}}
{{- $cluster := include "topics.clusterPort" .root | int -}}
{{- $ports := list (dict "name" "http" "http" true "port" (include "topics.containerPort" .root | int)
  "service" $values.service.port "nodePort" $values.service.nodePort) -}}
{{- range ternary $cells list (and .all $values.kafka.enabled) -}}
{{- $ports = append $ports (dict "name" (include "topics.kafkaPortName" .) "port" (add $kafka .)
  "service" (add $values.kafka.port .) "nodePort" (and $values.kafka.nodePort (add $values.kafka.nodePort .))) -}}
{{- end -}}
{{- range ternary $cells list (and .all $values.cellPorts.enabled) -}}
{{- $ports = append $ports (dict "name" (printf "cell-%d" .) "http" true "port" (add $cell0 .)
  "service" (add $values.cellPorts.port .)) -}}
{{- end -}}
{{- if .cluster -}}
{{- $ports = append $ports (dict "name" "cluster" "port" $cluster "service" $cluster) -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* The ports of a Service, by their numbers in the pod (headless) or those of the values. */}}
{{- define "topics.servicePorts" -}}
{{- $given := . -}}
{{- range include "topics.ports" . | fromJsonArray }}
- name: {{ .name }}
  port: {{ ternary .port .service (eq $given.by "port") }}
  targetPort: {{ .name }}
  protocol: TCP
  {{- if .http }}
  appProtocol: {{ include "topics.scheme" $given.root }}
  {{- end }}
  {{- if and .nodePort (eq $given.by "service") }}
  nodePort: {{ .nodePort }}
  {{- end }}
{{- end }}
{{- end -}}
