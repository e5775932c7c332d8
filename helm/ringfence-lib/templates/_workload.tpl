{{/* A Deployment or a StatefulSet. If the value state is set, each replica has a volume. All other state is in Postgres and Kafka. */}}
{{- define "ringfence-lib.workload" -}}
{{- $kind := .Values.kind | default "Deployment" -}}
apiVersion: apps/v1
kind: {{ $kind }}
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  replicas: {{ include "ringfence-lib.replicas" . }}
  {{- if eq $kind "StatefulSet" }}
  serviceName: {{ .Chart.Name }}-private
  podManagementPolicy: Parallel
  {{- else }}
  # One replica at a time, after its replacement is ready: the budget of database connections depends on it.
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  {{- end }}
  selector:
    matchLabels: {{- include "ringfence-lib.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "ringfence-lib.labels" . | nindent 8 }}
      annotations:
        checksum/config: {{ include "ringfence-lib.configmap" . | sha256sum }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ .Chart.Name }}
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
      {{- if .Values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- include "ringfence-lib.pod" . | nindent 6 }}
      {{- if eq .Values.migrate.as "init" }}
      initContainers:
        - name: migrate
          args: [migrate]
          {{- include "ringfence-lib.container" . | trim | nindent 10 }}
            {{- include "ringfence-lib.ownerURL" . | nindent 12 }}
      {{- end }}
      containers:
        - name: {{ .Chart.Name }}
          {{- include "ringfence-lib.container" . | trim | nindent 10 }}
          ports:
            - {name: http, containerPort: 8080}
            - {name: private, containerPort: 9090}
            {{- with .Values.adminPort }}
            - {name: admin, containerPort: {{ . }}}
            {{- end }}
            {{- with .Values.consolePort }}
            - {name: console, containerPort: {{ . }}}
            {{- end }}
          # A replica that does not respond here hangs and cannot drain, so it is killed without the drain time.
          startupProbe: {httpGet: {path: /livez, port: private}, periodSeconds: 2, failureThreshold: {{ div (add .Values.startsWithin 1) 2 }}, terminationGracePeriodSeconds: 30}
          livenessProbe: {httpGet: {path: /livez, port: private}, periodSeconds: 10, failureThreshold: 6, terminationGracePeriodSeconds: 30}
          readinessProbe: {httpGet: {path: /readyz, port: private}, periodSeconds: 5, timeoutSeconds: 3}
      affinity: {{- include "ringfence-lib.affinity" . | trim | nindent 8 }}
      {{- with .Values.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- with .Values.state }}
  {{- if ne $kind "StatefulSet" }}{{ fail "state: only a StatefulSet has a volume for each replica" }}{{ end }}
  volumeClaimTemplates:
    - metadata:
        name: state
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .storageClassName }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ .size }}}}
  {{- end }}
{{- end }}

{{/* The number of replicas. With autoscaling it is the number that runs now, or autoscaling.min if no replica runs yet. If the manifest
lacked the number, the API server would set 1 when autoscaling is enabled. The function lookup finds nothing without a cluster (helm template). */}}
{{- define "ringfence-lib.replicas" -}}
{{- if .Values.autoscaling.enabled -}}
{{- dig "spec" "replicas" .Values.autoscaling.min (lookup "apps/v1" .Values.kind .Release.Namespace .Chart.Name) | int -}}
{{- else -}}
{{- .Values.replicas -}}
{{- end -}}
{{- end }}

{{/* The settings of every pod. A migration uses the same nodes as its service. */}}
{{- define "ringfence-lib.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- range $field := list "nodeSelector" "tolerations" "priorityClassName" }}
{{- with index $.Values $field }}
{{ $field }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  {{- if or .Values.state .Values.files.secret }}
  fsGroup: 65532
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.files.secret }}
volumes:
  - name: files
    secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* Replicas prefer different nodes. With host networking they need different nodes. */}}
{{- define "ringfence-lib.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else }}
podAntiAffinity:
  {{- if .Values.hostNetwork }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {{- include "ringfence-lib.selector" . | nindent 10 }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "ringfence-lib.selector" . | nindent 12 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.image" -}}
{{- $global := .Values.global | default dict -}}
{{ with $global.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}:{{ include "ringfence-lib.version" . }}
{{- end }}

{{/* The version that runs, which is the tag of the image. */}}
{{- define "ringfence-lib.version" -}}
{{- .Values.image.tag | default (.Values.global | default dict).tag | default .Chart.AppVersion -}}
{{- end }}

{{/* The part of the container that the service and its migration share. env is last, so that more variables can follow. */}}
{{- define "ringfence-lib.container" -}}
{{ include "ringfence-lib.body" . }}
envFrom:
  - configMapRef: {name: {{ .Chart.Name }}}
env:
  {{- if .Values.env.KAFKA_BROKERS }}
  # The same after a restart of the container, so that a killed consumer continues immediately.
  - name: KAFKA_INSTANCE_ID
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  {{- if .Values.hostNetwork }}
  # A node can have public addresses. Internal APIs, metrics and profiles are served at its cluster address only. An IPv6 address needs brackets.
  - name: NODE_ADDRESS
    valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  - {name: HTTP_ADDR, value: "[$(NODE_ADDRESS)]:8080"}
  - {name: PRIVATE_ADDR, value: "[$(NODE_ADDRESS)]:9090"}
  {{- end }}
  {{- range .Values.hostAddress }}
  - name: {{ . }}
    valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  {{- end }}
  {{- include "ringfence-lib.secrets" . | trim | nindent 2 }}
{{- end }}

{{- define "ringfence-lib.body" -}}
image: {{ include "ringfence-lib.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- if or .Values.state .Values.files.secret }}
volumeMounts:
  {{- if .Values.state }}
  - {name: state, mountPath: /state}
  {{- end }}
  {{- if .Values.files.secret }}
  - {name: files, mountPath: {{ .Values.files.path }}, readOnly: true}
  {{- end }}
{{- end }}
{{- end }}

{{- define "ringfence-lib.secrets" -}}
{{- range .Values.secret.keys }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.secret.name }}, key: {{ . }}}}
{{- end }}
{{- range .Values.secret.optional }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.secret.name }}, key: {{ . }}, optional: true}}
{{- end }}
{{- end }}

{{- define "ringfence-lib.ownerURL" -}}
- name: POSTGRES_MIGRATE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.secret.name }}, key: {{ .Values.migrate.secretKey }}}}
{{- end }}
