{{/* Renders nothing. Fails if Kubernetes would accept the values but the service would not work with them. The message contains all errors. */}}
{{- define "ringfence-lib.refuse" -}}
{{- $faults := list }}
{{- with include "ringfence-lib.noRegistry" (include "ringfence-lib.image" .) }}{{ $faults = append $faults . }}{{ end }}
{{- range splitList "," (.Values.env.TRUSTED_KEYS | default "") }}
{{- $key := splitn "=" 2 (trim .) }}
{{- if and $key._0 (not (regexMatch "^[A-Za-z0-9+/]{43}=$" ($key._1 | default ""))) }}
{{- $faults = append $faults (printf "env.TRUSTED_KEYS: %q is not the public key of %s, which is 44 characters of base64: use the values.yaml that environments/secrets.sh writes (--values)" ($key._1 | default "") $key._0) }}
{{- end }}
{{- end }}
{{- range .Values.network.askedBy }}
{{- if not (regexMatch (printf "(^|,) *%s=" .) ($.Values.env.TRUSTED_KEYS | default "")) }}
{{- $faults = append $faults (printf "env.TRUSTED_KEYS names no public key of %s, which calls this service (environments/secrets.sh creates the keys)" .) }}
{{- end }}
{{- end }}
{{- range .Values.hostAddress }}
{{- if not $.Values.hostNetwork }}{{ $faults = append $faults (printf "hostAddress: %s would be the node's address, on which a pod without hostNetwork cannot listen" .) }}{{ end }}
{{- if hasKey $.Values.env . }}{{ $faults = append $faults (printf "hostAddress: %s is also set in env, where it would be ignored" .) }}{{ end }}
{{- end }}
{{- /* The time to end is the sum of DRAIN_DELAY, the time for SIP calls (DRAIN_LIMIT), and 20 s for the parts of the process (libs/service). */}}
{{- $drain := list (.Values.env.DRAIN_DELAY | default "0s") "20s" }}
{{- if eq (.Values.env.CARRIER | default "") "sip" }}{{ $drain = append $drain (.Values.env.DRAIN_LIMIT | default "15s") }}{{ end }}
{{- $ends := include "ringfence-lib.seconds" (join " " $drain) | int }}
{{- if lt (int .Values.terminationGracePeriodSeconds) $ends }}
{{- $faults = append $faults (printf "terminationGracePeriodSeconds is %d, and a replica can take %d seconds to end (%s)" (int .Values.terminationGracePeriodSeconds) $ends (join ", " $drain)) }}
{{- end }}
{{- range compact (splitList "," (.Values.env.KAFKA_BROKERS | default "")) }}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default "9092" | int }}
{{- if not (has (toString $port) (toStrings $.Values.network.kafka.ports)) }}
{{- $faults = append $faults (printf "network.kafka.ports has no %d, the port of a broker in env.KAFKA_BROKERS" $port) }}
{{- end }}
{{- end }}
{{- with .Values.env.OTEL_EXPORTER_OTLP_ENDPOINT }}
{{- $port := regexFind ":[0-9]+" . | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https:" .)) | int }}
{{- if not (has (toString $port) (toStrings $.Values.network.collector.ports)) }}
{{- $faults = append $faults (printf "network.collector.ports has no %d, the port of the collector in env.OTEL_EXPORTER_OTLP_ENDPOINT" $port) }}
{{- end }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled .by }}
{{- /* If the service scales on records only, replicas beyond the number of partitions have no work. */}}
{{- $most := 0 }}{{- $other := false }}
{{- range .by }}{{ if .partitions }}{{ $most = max $most .partitions }}{{ else }}{{ $other = true }}{{ end }}{{ end }}
{{- if and (not $other) (gt (int .max) (int $most)) }}
{{- $faults = append $faults (printf "autoscaling.max is %d, and the topics of the service have at most %d partitions: further replicas would get no records" (int .max) (int $most)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $faults = concat $faults (include "ringfence-lib.telephony" . | fromYamlArray) }}
{{- if $faults }}{{ fail (printf "%s: %s" .Chart.Name (join "; " $faults)) }}{{ end }}
{{- end }}

{{/* The error of an image without a registry. As for a container runtime, the first part of an image's name is a registry if it contains a dot or a port,
or is localhost. */}}
{{- define "ringfence-lib.noRegistry" -}}
{{- $first := splitList "/" (trim .) | first }}
{{- if not (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- printf "the image %s names no registry: set global.registry to the registry that contains your images (docs/deploy/helm.md, Install)" (trim .) }}
{{- end }}
{{- end }}

{{/* Errors of a service that places calls, as a YAML list. */}}
{{- define "ringfence-lib.telephony" -}}
{{- $env := .Values.env }}
{{- if hasKey $env "CARRIER" }}
{{- if eq $env.CARRIER "sip" }}
{{- range list "SIP_ADVERTISED_ADDR" "RTP_ADDR" }}
{{- if not (or (has . $.Values.hostAddress) (hasKey $env .)) }}
- {{ printf "%s is set neither in hostAddress nor in env: trunks would send to 127.0.0.1" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $env.RECORDINGS_S3_URL (not (and .Values.state (hasPrefix "/state/" ($env.RECORDINGS_SPOOL_DIR | default "")))) }}
- "RECORDINGS_S3_URL: recordings in progress must outlive the pod, and the pod's own disk is read-only: set state.size, and RECORDINGS_SPOOL_DIR to a directory below /state/"
{{- end }}
{{- if $env.RECORDINGS_DIR }}
- "RECORDINGS_DIR: the other replicas cannot read the volume of one replica: store recordings in a bucket (RECORDINGS_S3_URL)"
{{- end }}
{{- end }}
{{- end }}

{{/* The sum of durations in the format of Go (1h30m, 500ms), in whole seconds. */}}
{{- define "ringfence-lib.seconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+(h|ms|m|s)" . -1 }}
{{- $number := regexFind "^[0-9.]+" . | float64 }}
{{- if hasSuffix "ms" . }}{{ $number = divf $number 1000 }}{{ else if hasSuffix "m" . }}{{ $number = mulf $number 60 }}{{ else if hasSuffix "h" . }}{{ $number = mulf $number 3600 }}{{ end }}
{{- $sum = addf $sum $number }}
{{- end }}
{{- ceil $sum | int }}
{{- end }}
