{{/* Kubernetes can evict at most one replica at a time. */}}
{{- define "ringfence-lib.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "ringfence-lib.selector" . | nindent 6 }}
{{- end }}

{{/* Scales on the backlog: the value above is a limit for all replicas together, and the value each is a limit for every replica. An adapter
provides the service's metrics to the cluster: docs/deploy/helm.md, Scaling. */}}
{{- define "ringfence-lib.autoscaler" -}}
{{- with .Values.autoscaling }}
{{- if .enabled }}
{{- if lt (int .max) (int .min) }}{{ fail (printf "autoscaling: max (%d) is less than min (%d)" (int .max) (int .min)) }}{{ end -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $.Chart.Name }}
  labels: {{- include "ringfence-lib.labels" $ | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ $.Values.kind }}, name: {{ $.Chart.Name }}}
  minReplicas: {{ .min }}
  maxReplicas: {{ .max }}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 30, policies: [{type: Pods, value: 2, periodSeconds: 60}]}
    scaleDown: {stabilizationWindowSeconds: 600, policies: [{type: Pods, value: 1, periodSeconds: 300}]}
  metrics:
    {{- with .cpu }}
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ . }}}}
    {{- end }}
    {{- range .by }}
    - type: External
      external:
        metric:
          name: {{ .metric }}
          {{- with .labels }}
          selector: {matchLabels: {{ toJson . }}}
          {{- end }}
        {{- if .each }}
        target: {type: AverageValue, averageValue: {{ include "ringfence-lib.text" .each | quote }}}
        {{- else }}
        target: {type: Value, value: {{ include "ringfence-lib.text" .above | quote }}}
        {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.monitor" -}}
{{- with .Values.monitor }}
{{- if .enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ $.Chart.Name }}
  labels:
    {{- include "ringfence-lib.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  jobLabel: app.kubernetes.io/name
  selector:
    matchLabels:
      {{- include "ringfence-lib.selector" $ | nindent 6 }}
      ringfence.dev/port: private
  endpoints:
    - {port: private, path: /metrics, interval: {{ .interval }}}
{{- end }}
{{- end }}
{{- end }}
