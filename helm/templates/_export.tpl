{{/* Exports: what jobs, and drivers and executors of Spark, have in common. */}}

{{- define "topics.exportArguments" -}}
- export
- --to
- {{ .Values.export.to }}
- --topics
- {{ join "," .Values.export.topics | quote }}
{{- with .Values.export.format }}
- --format
- {{ . }}
{{- end }}
{{- with .Values.export.maxLag }}
- --max-lag
- {{ int64 . | quote }}
{{- end }}
{{- range .Values.export.options }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Vacuum comes after the compaction of each topic, in the same process: the two never work on a table at once. */}}
{{- define "topics.compactArguments" -}}
- compact
- --to
- {{ .Values.export.to }}
- --topics
- {{ join "," .Values.export.topics | quote }}
{{- if .Values.export.compact.vacuum.enabled }}
- --vacuum
- --retain
- {{ .Values.export.compact.vacuum.retain }}
{{- end }}
{{- end -}}

{{/* Where the broker is, and how it is read. */}}
{{- define "topics.exportEnv" -}}
{{ include "topics.clientEnv" (dict "root" . "key" .Values.auth.secretKeys.metrics) }}
# Spark, Java and Python put files aside; the root file system is read-only.
- name: HOME
  value: /tmp
{{- end -}}

{{- define "topics.exportEnvFrom" -}}
{{- with .Values.export.secretRef -}}
- secretRef:
    name: {{ . }}
{{- end -}}
{{- end -}}

{{- define "topics.exportMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.export.existingClaim }}
- name: export
  mountPath: /export
{{- end }}
{{- with include "topics.caMount" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "topics.exportVolumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.export.existingClaim }}
- name: export
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- with include "topics.caVolume" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "topics.exportScheduling" -}}
{{- $export := .Values.export -}}
{{- include "topics.scheduling" (dict "nodeSelector" ($export.nodeSelector | default .Values.nodeSelector) "tolerations" ($export.tolerations | default .Values.tolerations) "affinity" $export.affinity) | trim -}}
{{- end -}}

{{/* A CronJob of the exporter's image. Takes root, name (a component), schedule, arguments (a list, as text). */}}
{{- define "topics.exportJob" -}}
{{- $root := .root -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ include "topics.fullname" $root }}-{{ .name }}
  labels:
    {{- include "topics.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  schedule: {{ .schedule | quote }}
  # One at a time; the next one does what a missed one would have.
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 3600
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    metadata:
      labels:
        {{- include "topics.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .name }}
    spec:
      # A run that was killed anywhere is simply run again.
      backoffLimit: 2
      template:
        metadata:
          labels:
            {{- include "topics.labels" $root | nindent 12 }}
            app.kubernetes.io/component: {{ .name }}
        spec:
          {{- include "topics.clientPod" $root | nindent 10 }}
          {{- with include "topics.exportScheduling" $root }}
          {{- . | nindent 10 }}
          {{- end }}
          containers:
            - name: {{ .name }}
              command:
                - python
                - -m
                - topics_broker.pipeline
                {{- .arguments | nindent 16 }}
              image: {{ include "topics.imageOf" (dict "image" $root.Values.export.image "root" $root) }}
              imagePullPolicy: {{ $root.Values.export.image.pullPolicy }}
              env:
                {{- include "topics.exportEnv" $root | nindent 16 }}
              {{- with include "topics.exportEnvFrom" $root }}
              envFrom:
                {{- . | nindent 16 }}
              {{- end }}
              securityContext:
                {{- include "topics.containerSecurity" $root | nindent 16 }}
              resources:
                {{- toYaml $root.Values.export.resources | nindent 16 }}
              volumeMounts:
                {{- include "topics.exportMounts" $root | nindent 16 }}
          volumes:
            {{- include "topics.exportVolumes" $root | nindent 12 }}
{{- end -}}

{{/* The operator puts the time of a run behind the name, a dash and 19 digits, and makes a label of that, which may have 63
characters. */}}
{{- define "topics.sparkName" -}}
{{- printf "%s-export" (include "topics.fullname" . | trunc 36 | trimSuffix "-") -}}
{{- end -}}

{{/* The pods of Spark, beside their size. Executors read from the broker and write files, as the driver does. */}}
{{- define "topics.sparkPod" -}}
labels:
  {{- include "topics.labels" . | nindent 2 }}
  app.kubernetes.io/component: export
env:
  {{- include "topics.exportEnv" . | nindent 2 }}
{{- with include "topics.exportEnvFrom" . }}
envFrom:
  {{- . | nindent 2 }}
{{- end }}
volumeMounts:
  {{- include "topics.exportMounts" . | nindent 2 }}
podSecurityContext:
  {{- include "topics.podSecurity" . | nindent 2 }}
securityContext:
  {{- include "topics.containerSecurity" . | nindent 2 }}
{{- with include "topics.exportScheduling" . }}
{{ . }}
{{- end }}
{{- end -}}
