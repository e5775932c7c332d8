{{/* All objects of one service. The name of the chart is the name of the service and its DNS name. */}}
{{- define "ringfence-lib.service" -}}
{{- include "ringfence-lib.refuse" . }}
{{- range $part := list "serviceaccount" "configmap" "services" "workload" "disruption" "autoscaler" "network" "migration" "monitor" }}
{{- with include (printf "ringfence-lib.%s" $part) $ | trim }}
---
{{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ringfence-lib.about" -}}
app.kubernetes.io/part-of: ringfence
app.kubernetes.io/version: {{ include "ringfence-lib.versionLabel" (include "ringfence-lib.version" .) | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* A tag as the value of a label. A tag can be longer than a label, begin or end with - _ or ., and contain a digest. */}}
{{- define "ringfence-lib.versionLabel" -}}
{{- splitList "@" . | first | trunc 63 | trimAll "-_." }}
{{- end }}

{{- define "ringfence-lib.labels" -}}
{{ include "ringfence-lib.selector" . }}
{{ include "ringfence-lib.about" . }}
{{- end }}

{{- define "ringfence-lib.serviceaccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
  {{- with .Values.serviceAccountAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{- define "ringfence-lib.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
data: {{- include "ringfence-lib.settings" . | nindent 2 }}
{{- end }}

{{/* The variables of a service, as NAME: "value". */}}
{{- define "ringfence-lib.settings" -}}
HTTP_ADDR: ":8080"
PRIVATE_ADDR: ":9090"
{{- if .Values.adminPort }}
ADMIN_ADDR: ":{{ .Values.adminPort }}"
{{- end }}
{{- if .Values.consolePort }}
CONSOLE_ADDR: ":{{ .Values.consolePort }}"
{{- end }}
{{- with and (not .Values.env.GOMEMLIMIT) .Values.resources.limits.memory }}
GOMEMLIMIT: "{{ include "ringfence-lib.most" . }}MiB"
{{- end }}
{{- range $name, $value := .Values.env }}
{{ $name }}: {{ include "ringfence-lib.text" $value | quote }}
{{- end }}
{{- end }}

{{/* A value in the form in which it was written. Helm reads YAML numbers as floats and would render a million as 1e+06. */}}
{{- define "ringfence-lib.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* Four fifths of a memory limit (Mi or Gi) in MiB, for GOMEMLIMIT. */}}
{{- define "ringfence-lib.most" -}}
{{- $number := regexFind "^[0-9]+" . | int }}
{{- if hasSuffix "Gi" . }}{{ $number = mul $number 1024 }}{{ end }}
{{- div (mul $number 4) 5 }}
{{- end }}

{{/* Public and private ports have separate Services. The private port has two: one selects every replica for scraping, also replicas that are not ready;
the other selects ready replicas, for the gateway's /readyz. */}}
{{- define "ringfence-lib.services" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  selector: {{- include "ringfence-lib.selector" . | nindent 4 }}
  ports:
    - {name: http, port: 8080, targetPort: http}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Chart.Name }}-private
  labels:
    {{- include "ringfence-lib.labels" . | nindent 4 }}
    ringfence.dev/port: private
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "ringfence-lib.selector" . | nindent 4 }}
  ports:
    - {name: private, port: 9090, targetPort: private}
{{- if .Values.network.probedBy }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Chart.Name }}-ready
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  selector: {{- include "ringfence-lib.selector" . | nindent 4 }}
  ports:
    - {name: private, port: 9090, targetPort: private}
{{- end }}
{{- if .Values.adminPort }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Chart.Name }}-admin
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  selector: {{- include "ringfence-lib.selector" . | nindent 4 }}
  ports:
    - {name: admin, port: {{ .Values.adminPort }}, targetPort: admin}
{{- end }}
{{- if .Values.consolePort }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Chart.Name }}-console
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  selector: {{- include "ringfence-lib.selector" . | nindent 4 }}
  ports:
    - {name: console, port: {{ .Values.consolePort }}, targetPort: console}
{{- end }}
{{- end }}
