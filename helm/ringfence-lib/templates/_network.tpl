{{/* The connections of a service: calls between services, requests that the gateway forwards, Postgres, Kafka, DNS, the collector, and the values' own rules.
No policy applies to a pod with host networking: other pods see its node's address. global.nodes lists the networks of the nodes, which do not count as internet.
Kubernetes applies a rule without peers to all peers, so an empty list renders no rule. */}}
{{- define "ringfence-lib.network" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "ringfence-lib.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- with .Values.network }}
    {{- if or .public .askedBy }}
    - ports: [{port: http, protocol: TCP}]
      {{- if not .public }}
      from:
        {{- include "ringfence-lib.peers" (list $ .askedBy) | trim | nindent 8 }}
      {{- else if .clients }}
      from: {{- toYaml .clients | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if or .probedBy .monitoring }}
    - ports: [{port: private, protocol: TCP}]
      from:
        {{- with .probedBy }}
        {{- include "ringfence-lib.peers" (list $ .) | trim | nindent 8 }}
        {{- end }}
        {{- with .monitoring }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
    {{- if and $.Values.adminPort .operators }}
    - ports: [{port: admin, protocol: TCP}]
      from: {{- toYaml .operators | nindent 8 }}
    {{- end }}
    {{- if and $.Values.consolePort .consoles }}
    - ports: [{port: console, protocol: TCP}]
      from: {{- toYaml .consoles | nindent 8 }}
    {{- end }}
    {{- end }}
  egress:
    {{- include "ringfence-lib.toPostgres" . | trim | nindent 4 }}
    {{- with .Values.network }}
    {{- with .kafka }}
    - ports: {{- include "ringfence-lib.tcp" .ports | trim | nindent 8 }}
      {{- with .to }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if .collector.to }}
    - ports: {{- include "ringfence-lib.tcp" .collector.ports | trim | nindent 8 }}
      to: {{- toYaml .collector.to | nindent 8 }}
    {{- end }}
    {{- if .asks }}
    - ports: [{port: 8080, protocol: TCP}]
      to: {{- include "ringfence-lib.peers" (list $ .asks) | trim | nindent 8 }}
    {{- end }}
    {{- if .probes }}
    - ports: [{port: 9090, protocol: TCP}]
      to: {{- include "ringfence-lib.peers" (list $ .probes) | trim | nindent 8 }}
    {{- end }}
    {{- with .internet }}
    {{- $nodes4 := list }}{{- $nodes6 := list }}
    {{- range ($.Values.global | default dict).nodes }}
    {{- if contains ":" . }}{{ $nodes6 = append $nodes6 . }}{{ else }}{{ $nodes4 = append $nodes4 . }}{{ end }}
    {{- end }}
    - ports: {{- toYaml .ports | nindent 8 }}
      to:
        - ipBlock:
            cidr: 0.0.0.0/0
            except: {{- toYaml (concat .except4 $nodes4 | uniq) | nindent 14 }}
        - ipBlock:
            cidr: ::/0
            except: {{- toYaml (concat .except6 $nodes6 | uniq) | nindent 14 }}
    {{- end }}
    {{- with .egress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "ringfence-lib.toPostgres" -}}
{{- with .Values.network.dns }}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
  to: {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .Values.network.postgres }}
- ports: {{- include "ringfence-lib.tcp" .ports | trim | nindent 4 }}
  {{- with .to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.tcp" -}}
{{- range . }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* The pods of other services of the release, and the dialer's nodes if the dialer is one of them. */}}
{{- define "ringfence-lib.peers" -}}
{{- $root := index . 0 }}
{{- range index . 1 }}
- podSelector: {matchLabels: {app.kubernetes.io/name: {{ . }}, app.kubernetes.io/instance: {{ $root.Release.Name }}}}
{{- if eq . "dialer" }}
{{- range ($root.Values.global | default dict).nodes }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
