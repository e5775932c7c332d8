{{/* A Deployment, or with kind StatefulSet one whose replicas keep their names, and with state a volume each. All other state lies in Postgres and Kafka. */}}
{{- define "ringfence-lib.workload" -}}
{{- $kind := .Values.kind | default "Deployment" -}}
apiVersion: apps/v1
kind: {{ $kind }}
metadata:
  name: {{ .Chart.Name }}
  labels: {{- include "ringfence-lib.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.replicas }}
  {{- if eq $kind "StatefulSet" }}
  serviceName: {{ .Chart.Name }}-private
  podManagementPolicy: Parallel
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
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | default 30 }} {{- /* the services drain for at most 20 s; the dialer for DRAIN_LIMIT more */}}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        {{- if .Values.state }}
        fsGroup: 65532
        {{- end }}
        seccompProfile: {type: RuntimeDefault}
      {{- with (.Values.migrate).secretKey }}
      initContainers:
        - name: migrate
          args: [migrate]
          {{- include "ringfence-lib.container" $ | nindent 10 }}
            - name: POSTGRES_MIGRATE_URL
              valueFrom: {secretKeyRef: {name: {{ $.Values.secret.name }}, key: {{ . }}}}
      {{- end }}
      containers:
        - name: {{ .Chart.Name }}
          {{- include "ringfence-lib.container" . | nindent 10 }}
          ports:
            - {name: http, containerPort: 8080}
            - {name: private, containerPort: 9090}
            {{- with .Values.adminPort }}
            - {name: admin, containerPort: {{ . }}}
            {{- end }}
          {{- if .Values.state }}
          volumeMounts:
            - {name: state, mountPath: /state}
          {{- end }}
          startupProbe: {httpGet: {path: /livez, port: private}, periodSeconds: 2, failureThreshold: 30}
          livenessProbe: {httpGet: {path: /livez, port: private}, periodSeconds: 10, failureThreshold: 6}
          readinessProbe: {httpGet: {path: /readyz, port: private}, periodSeconds: 5, timeoutSeconds: 3}
      {{- range $field := list "nodeSelector" "tolerations" "affinity" }}
      {{- with index $.Values $field }}
      {{ $field }}: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
  {{- with .Values.state }}
  {{- if ne $kind "StatefulSet" }}{{ fail "state: only a StatefulSet has a volume a replica" }}{{ end }}
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

{{/* What the service and its migration share; env comes last, so that more can follow. */}}
{{- define "ringfence-lib.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .Values.resources | nindent 2 }}
envFrom:
  - configMapRef: {name: {{ .Chart.Name }}}
env:
  {{- if .Values.env.KAFKA_BROKERS }}
  # The same over a container's restarts: a killed consumer goes on at once.
  - name: KAFKA_INSTANCE_ID
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
  {{- range .Values.secret.keys }}
  - name: {{ . }}
    valueFrom: {secretKeyRef: {name: {{ $.Values.secret.name }}, key: {{ . }}}}
  {{- end }}
{{- end }}
