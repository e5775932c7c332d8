{{/* The labels of the objects that belong to no service. */}}
{{- define "ringfence.about" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: ringfence
app.kubernetes.io/version: {{ include "ringfence-lib.versionLabel" (.Values.global.tag | default .Chart.AppVersion) | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
