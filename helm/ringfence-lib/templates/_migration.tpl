{{/* Migrates the schema with the new image before an install or upgrade, as the owner role, whose URL no other pod gets. The hook runs before the other
objects of the release exist, so it has its own settings and network policy. */}}
{{- define "ringfence-lib.migration" -}}
{{- if eq .Values.migrate.as "job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Chart.Name }}-migrate
  labels: {{- include "ringfence-lib.migrationLabels" . | nindent 4 }}
  annotations: {{- include "ringfence-lib.hook" "0" | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: {{ .Values.migrate.within }}
  template:
    metadata:
      labels: {{- include "ringfence-lib.migrationLabels" . | nindent 8 }}
    spec:
      restartPolicy: Never
      {{- $stateless := set (deepCopy .Values) "state" dict }}
      {{- include "ringfence-lib.pod" (dict "Values" $stateless) | nindent 6 }}
      containers:
        - name: migrate
          args: [migrate]
          {{- include "ringfence-lib.body" (dict "Values" $stateless "Chart" .Chart) | nindent 10 }}
          env:
            {{- range $name, $value := include "ringfence-lib.settings" . | fromYaml }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- include "ringfence-lib.secrets" . | trim | nindent 12 }}
            {{- include "ringfence-lib.ownerURL" . | nindent 12 }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .Chart.Name }}-migrate
  labels: {{- include "ringfence-lib.migrationLabels" . | nindent 4 }}
  annotations: {{- include "ringfence-lib.hook" "-5" | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .Chart.Name }}-migrate
      app.kubernetes.io/instance: {{ .Release.Name }}
  policyTypes: [Ingress, Egress]
  egress: {{- include "ringfence-lib.toPostgres" . | trim | nindent 4 }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.migrationLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-migrate
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "ringfence-lib.about" . }}
{{- end }}

{{- define "ringfence-lib.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation
{{- end }}
