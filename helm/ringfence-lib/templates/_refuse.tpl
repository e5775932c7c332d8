{{/* Renders nothing. Fails if Kubernetes would accept the values and they would not work. The message names all errors. */}}
{{- define "ringfence-lib.refuse" -}}
{{- $faults := list }}
{{- /* Like a container runtime: the first part of an image's name is a registry if it has a dot or a port, or is localhost. */}}
{{- $first := splitList "/" (include "ringfence-lib.image" .) | first }}
{{- if not (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- $faults = append $faults (printf "the image %s names no registry: set global.registry to the one that holds your images (docs/deploy/helm.md, Install)" (include "ringfence-lib.image" .)) }}
{{- end }}
{{- range splitList "," (.Values.env.TRUSTED_KEYS | default "") }}
{{- $key := splitn "=" 2 (trim .) }}
{{- if and $key._0 (not (regexMatch "^[A-Za-z0-9+/]{43}=$" ($key._1 | default ""))) }}
{{- $faults = append $faults (printf "env.TRUSTED_KEYS: %q is not the public key of %s, which is 44 characters of base64: use the values.yaml that environments/secrets.sh writes (--values)" ($key._1 | default "") $key._0) }}
{{- end }}
{{- end }}
{{- range .Values.network.askedBy }}
{{- if not (regexMatch (printf "(^|,) *%s=" .) ($.Values.env.TRUSTED_KEYS | default "")) }}
{{- $faults = append $faults (printf "env.TRUSTED_KEYS names no public key of %s, which may ask it (environments/secrets.sh makes them)" .) }}
{{- end }}
{{- end }}
{{- range .Values.hostAddress }}
{{- if not $.Values.hostNetwork }}{{ $faults = append $faults (printf "hostAddress: %s would be the node's address, which a pod without hostNetwork does not have" .) }}{{ end }}
{{- if hasKey $.Values.env . }}{{ $faults = append $faults (printf "hostAddress: %s is also set in env, where it would be ignored" .) }}{{ end }}
{{- end }}
{{- /* DRAIN_DELAY, then calls over SIP, then 20 s (libs/service). */}}
{{- $drain := list (.Values.env.DRAIN_DELAY | default "0s") "20s" }}
{{- if eq (.Values.env.CARRIER | default "") "sip" }}{{ $drain = append $drain (.Values.env.DRAIN_LIMIT | default "15s") }}{{ end }}
{{- $ends := include "ringfence-lib.seconds" (join " " $drain) | int }}
{{- if lt (int .Values.terminationGracePeriodSeconds) $ends }}
{{- $faults = append $faults (printf "terminationGracePeriodSeconds is %d, and a replica may take %d to end (%s)" (int .Values.terminationGracePeriodSeconds) $ends (join ", " $drain)) }}
{{- end }}
{{- range splitList "," (.Values.env.KAFKA_BROKERS | default "") }}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default "9092" | int }}
{{- if not (has (toString $port) (toStrings $.Values.network.kafka.ports)) }}
{{- $faults = append $faults (printf "network.kafka.ports has no %d, at which env.KAFKA_BROKERS names a broker" $port) }}
{{- end }}
{{- end }}
{{- with .Values.env.OTEL_EXPORTER_OTLP_ENDPOINT }}
{{- $port := regexFind ":[0-9]+" . | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https:" .)) | int }}
{{- if not (has (toString $port) (toStrings $.Values.network.collector.ports)) }}
{{- $faults = append $faults (printf "network.collector.ports has no %d, at which env.OTEL_EXPORTER_OTLP_ENDPOINT names the collector" $port) }}
{{- end }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled .by }}
{{- /* With scaling on records only, a replica beyond the number of partitions has no work. */}}
{{- $most := 0 }}{{- $other := false }}
{{- range .by }}{{ if .partitions }}{{ $most = max $most .partitions }}{{ else }}{{ $other = true }}{{ end }}{{ end }}
{{- if and (not $other) (gt (int .max) (int $most)) }}
{{- $faults = append $faults (printf "autoscaling.max is %d, and what it reads has %d partitions: a replica more would get no records" (int .max) (int $most)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $faults = concat $faults (include "ringfence-lib.telephony" . | fromYamlArray) }}
{{- if $faults }}{{ fail (printf "%s: %s" .Chart.Name (join "; " $faults)) }}{{ end }}
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
- "RECORDINGS_S3_URL: what is being recorded must outlive the pod, whose disk cannot be written: it needs state.size, and RECORDINGS_SPOOL_DIR below /state/"
{{- end }}
{{- if $env.RECORDINGS_DIR }}
- "RECORDINGS_DIR: a replica's volume is its own, and recordings must lie where every replica finds them: name a bucket (RECORDINGS_S3_URL)"
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
