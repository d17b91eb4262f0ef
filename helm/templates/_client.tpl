{{/* A pod that is a client of this release's broker: the test, and the job that asks for backups. */}}

{{/* Takes root, and component (a label). Leaves the container's name, command and mounts, and the
scheduling, to the caller. */}}
{{- define "topics.clientPod" -}}
serviceAccountName: {{ include "topics.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service called topics would put TOPICS_PORT=tcp://... into the environment.
enableServiceLinks: false
restartPolicy: Never
{{- with include "topics.imagePullSecrets" . }}
{{ . }}
{{- end }}
securityContext:
  {{- include "topics.podSecurity" . | nindent 2 }}
{{- end -}}

{{/* Which node a pod goes to: takes nodeSelector, tolerations, affinity. */}}
{{- define "topics.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "topics.clientContainer" -}}
image: {{ include "topics.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  {{- include "topics.clientEnv" (dict "root" . "key" .Values.auth.secretKeys.admin) | nindent 2 }}
securityContext:
  {{- include "topics.containerSecurity" . | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 64Mi}
  limits: {memory: 256Mi}
{{- end -}}

{{/* Where the broker is, and how to be let in: takes root, and key, a key of the Secret. */}}
{{- define "topics.clientEnv" -}}
- name: TOPICS_URL
  value: {{ include "topics.url" .root }}
{{- if .root.Values.auth.enabled }}
- name: TOPICS_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "topics.secretName" .root }}
      key: {{ .key }}
{{- end }}
{{- if and .root.Values.tls.enabled .root.Values.tls.caKey }}
- name: SSL_CERT_FILE
  value: /etc/topics/ca/ca.crt
{{- end }}
{{- end -}}

{{- define "topics.caMount" -}}
{{- if and .Values.tls.enabled .Values.tls.caKey -}}
- name: ca
  mountPath: /etc/topics/ca
  readOnly: true
{{- end -}}
{{- end -}}

{{- define "topics.caVolume" -}}
{{- if and .Values.tls.enabled .Values.tls.caKey -}}
- name: ca
  secret:
    secretName: {{ include "topics.tlsSecret" . }}
    defaultMode: 0440
    items:
      - key: {{ .Values.tls.caKey }}
        path: ca.crt
{{- end -}}
{{- end -}}
