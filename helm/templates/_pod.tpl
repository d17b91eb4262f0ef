{{/* Parts of pods: security contexts and probes. */}}

{{- define "topics.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.runAs.user }}
runAsGroup: {{ .Values.runAs.group }}
fsGroup: {{ .Values.runAs.group }}
# A volume with many files is not walked through at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "topics.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{- define "topics.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "topics.scheme" .root | upper }}
{{- end -}}
