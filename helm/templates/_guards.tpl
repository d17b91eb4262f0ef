{{/* Values that contradict each other are refused with a sentence, before anything is installed. */}}

{{- define "topics.guards" -}}
{{- if ne (int .Values.replicas) 1 -}}
{{- fail (printf "replicas is %d, but must be 1: brokers do not replicate each other yet, so several behind one Service would each hold a part of the records; install another release instead (to stop this one for a while: kubectl scale)." (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.auth.existingSecret (not .Values.auth.enabled) -}}
{{- fail "auth.existingSecret is set, but auth.enabled is false: the keys in it would not be asked for." -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) -}}
{{- fail "tls.enabled is true, but tls.existingSecret does not say which Secret has the certificate (tls.crt) and its key (tls.key)." -}}
{{- end -}}
{{- if and .Values.tls.existingSecret (not .Values.tls.enabled) -}}
{{- fail "tls.existingSecret is set, but tls.enabled is false: the broker would serve in the plain." -}}
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
{{- if and .Values.export.schedule (hasPrefix "/" .Values.export.to) (not .Values.export.existingClaim) -}}
{{- fail (printf "export.to is the folder %s, but export.existingClaim does not say what is mounted at /export." .Values.export.to) -}}
{{- end -}}
{{- if and .Values.export.schedule (hasPrefix "/" .Values.export.to) (not (hasPrefix "/export" .Values.export.to)) -}}
{{- fail (printf "export.to is %s, which is no folder of /export, where the claim is mounted." .Values.export.to) -}}
{{- end -}}
{{- if lt (int (mul .Values.terminationGracePeriodSeconds 1000)) (int (add .Values.drainMs 20000)) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, too short for drainMs of %d: behind the drain requests in flight have 10 s, and the last snapshot needs some; leave 20 s." (int .Values.terminationGracePeriodSeconds) (int .Values.drainMs)) -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.nodePort is set, but service.type is ClusterIP, which has none." -}}
{{- end -}}
{{- if and .Values.kafka.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "kafka.nodePort is set, but service.type is ClusterIP, which has none." -}}
{{- end -}}
{{- $ports := list (int .Values.service.port) -}}
{{- range $cell := until (int .Values.cells) -}}
{{- if $.Values.kafka.enabled -}}
{{- $ports = append $ports (int (add $.Values.kafka.port $cell)) -}}
{{- end -}}
{{- if $.Values.cellPorts.enabled -}}
{{- $ports = append $ports (int (add $.Values.cellPorts.port $cell)) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "service.port, kafka.port and cellPorts.port, with one more for each further cell, are the ports %s: one Service cannot have a port twice." (join ", " $ports)) -}}
{{- end -}}
{{- if and .Values.cellPorts.enabled (eq (int .Values.cells) 1) -}}
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
{{- range .Values.extraEnv -}}
{{- if hasPrefix "TOPICS_" (upper .name) -}}
{{- fail (printf "extraEnv has %s: settings of the broker go to settings, where they are checked." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
