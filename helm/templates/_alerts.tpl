{{/* Alert rules about the jobs of this release, as a list. Those about its CronJobs and about the drivers of Spark need
kube-state-metrics. */}}
{{- define "topics.jobAlerts" -}}
{{- $name := include "topics.fullname" . -}}
{{/* The operator puts the time of a run behind the name of the application. */}}
{{- $drivers := printf "namespace=%q, pod=~%q" .Release.Namespace (printf "%s-[0-9]+-driver" (include "topics.sparkName" .)) -}}
{{- $late := int .Values.export.alertAfterSeconds -}}
{{- if .Values.backup.existingClaim }}
{{- $broker := printf "namespace=%q, pod=%q" .Release.Namespace (printf "%s-0" $name) }}
{{- $old := int .Values.backup.alertAfterSeconds }}
{{- /* A broker knows its backups since its start alone, so those before it are remembered. */}}
- alert: TopicsNoBackup
  expr: |-
    time() - max by (namespace, pod, cell) (max_over_time(topics_backup_newest_ms{ {{- $broker }}}[{{ $old }}s])) / 1000 > {{ $old }}
    and on (namespace, pod, cell) topics_uptime_seconds{ {{- $broker }}}
    and on (namespace, pod, cell) (
      topics_uptime_seconds{ {{- $broker }}} > {{ $old }}
      or max_over_time(topics_uptime_seconds{ {{- $broker }}}[{{ $old }}s] offset {{ $old }}s)
    )
  labels: {severity: warning}
  annotations:
    summary: The broker {{ $name }} in {{ .Release.Namespace }} has made no backup for {{ $old }} s.
    description: None was ever made, or they fail; the job {{ $name }}-backup and the log of the broker say why (backup_failed).
{{- end }}
{{- range $job, $schedule := dict "backup" .Values.backup.schedule "export" .Values.export.schedule "compact" .Values.export.compact.schedule }}
{{- if and $schedule (not (and (eq $job "export") $.Values.export.sparkOperator.enabled)) }}
{{- $selector := printf "namespace=%q, job_name=~%q, condition=\"true\"" $.Release.Namespace (printf "%s-%s-[0-9]+" $name $job) }}
- alert: Topics{{ title $job }}JobFailed
  expr: |-
    kube_job_failed{ {{- $selector }}} > 0
    unless on (namespace, job_name) kube_job_failed{ {{- $selector }}} offset 6h > 0
  labels: {severity: warning}
  annotations:
    summary: A run of {{ $name }}-{{ $job }} in {{ $.Release.Namespace }} has failed in the last 6 hours.
    description: {{ $job | eq "export" | ternary "Nothing is lost; the next run repeats it. The log of its pod says why." "The next run does the same work. The log of its pod says why." }}
{{- end }}
{{- end }}
{{- if and .Values.export.schedule .Values.export.sparkOperator.enabled }}
- alert: TopicsExportJobFailed
  expr: |-
    kube_pod_status_phase{ {{- $drivers }}, phase="Failed"} > 0
    unless on (namespace, pod, uid) kube_pod_status_phase{ {{- $drivers }}, phase="Failed"} offset 6h > 0
  # The operator replaces a driver that it starts again sooner.
  for: 5m
  labels: {severity: warning}
  annotations:
    summary: A driver of {{ include "topics.sparkName" . }} in {{ .Release.Namespace }} has failed in the last 6 hours.
    description: Nothing is lost; the next run repeats it. The log of its pod says why.
{{- end }}
{{- if .Values.export.schedule }}
- alert: TopicsExportBehind
  expr: |-
    {{- if .Values.export.sparkOperator.enabled }}
    time() - kube_statefulset_created{namespace="{{ .Release.Namespace }}", statefulset="{{ $name }}"} > {{ $late }}
    unless on (namespace) (
      time() - max_over_time(kube_pod_completion_time{ {{- $drivers }}}[{{ $late }}s]) < {{ $late }}
      and on (namespace, pod, uid) max_over_time(kube_pod_status_phase{ {{- $drivers }}, phase="Succeeded"}[{{ $late }}s]) > 0
    )
    {{- else }}
    time() - (
      kube_cronjob_status_last_successful_time{namespace="{{ .Release.Namespace }}", cronjob="{{ $name }}-export"}
      or kube_cronjob_created{namespace="{{ .Release.Namespace }}", cronjob="{{ $name }}-export"}
    ) > {{ $late }}
    {{- end }}
  labels: {severity: warning}
  annotations:
    summary: No run of {{ .Values.export.sparkOperator.enabled | ternary (include "topics.sparkName" .) (printf "%s-export" $name) }} in {{ .Release.Namespace }} has succeeded for {{ $late }} s.
    description: Records that are deleted before they are exported are missing in the files. The log of the last pod says why.
{{- end }}
{{- end -}}
