{{/* The service's configuration: what the values say, and what only the chart can know. */}}
{{- define "outrider.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $isService := eq .Values.mode "service" -}}
{{- $service := dict "listen" (printf "%s:%d" ($isService | ternary "0.0.0.0" "127.0.0.1") (int .Values.service.port)) -}}
{{- if $isService -}}
{{- $_ := set $service "advertise" (printf "%s.%s.svc" (include "outrider.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- $cluster := dict "address" "auto" "auth" "token" "internal_host" "node" -}}
{{- $_ := set $config "service" (merge $service ($config.service | default dict)) -}}
{{- $_ := set $config "cluster" (merge $cluster ($config.cluster | default dict)) -}}
{{/* JSON, because YAML would write large numbers as 1e+06. */}}
{{- toPrettyJson $config -}}
{{- end -}}

{{/* Seconds that running requests may go on after the service was told to end. */}}
{{- define "outrider.drainSeconds" -}}
{{- $cluster := .Values.config.cluster | default dict -}}
{{- $given := dig "drain_s" 5 $cluster -}}
{{- ceil $given | int -}}
{{- end -}}

{{/* Seconds that a start may take: as `outrider serve` counts them. */}}
{{- define "outrider.startSeconds" -}}
{{- $cluster := .Values.config.cluster | default dict -}}
{{- $placement := dig "placement_timeout_s" 60 $cluster -}}
{{- $start := dig "start_timeout_s" 300 $cluster -}}
{{- addf $placement (mulf 4 $start) | ceil | int -}}
{{- end -}}

{{/* What the entrypoint of a RayJob runs. */}}
{{- define "outrider.jobScript" -}}
{{- if eq .Values.mode "batch" -}}
#!/usr/bin/env bash
# Serves, runs the batch once the service is ready, and ends the service. The exit code is the batch's.
set -u
ready=/run/outrider/ready.json
outrider serve --config /etc/outrider/service.json --ready-file "$ready" --log-level {{ .Values.logLevel }} &
serve=$!
batch=
end() { kill "$serve" $batch 2>/dev/null; wait "$serve"; }
trap end EXIT
trap 'exit 143' TERM
until [ -e "$ready" ]; do
  kill -0 "$serve" 2>/dev/null || { echo "the service ended before it was ready" >&2; exit 1; }
  sleep 1
done
# In the background, because a shell hears signals only while it waits.
outrider batch {{ include "outrider.shellWords" (concat (list .Values.batch.input .Values.batch.output "--address" (printf "127.0.0.1:%d" (int .Values.service.port))) .Values.batch.args) }} &
batch=$!
wait "$batch"
{{- else -}}
#!/usr/bin/env bash
exec outrider train {{ include "outrider.shellWords" .Values.train.args }}
{{- end }}
{{ end -}}

{{/* Words as a shell takes them, whatever is in them. */}}
{{- define "outrider.shellWords" -}}
{{- $words := list -}}
{{- range . -}}
{{- $words = append $words (printf "'%s'" (toString . | replace "'" "'\\''")) -}}
{{- end -}}
{{- join " " $words -}}
{{- end -}}
