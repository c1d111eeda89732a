{{/* The service's configuration: what the values say, and what only the chart can know. */}}
{{- define "outrider.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $isService := eq .Values.mode "service" -}}
{{- $service := dict "listen" (printf "%s:%d" ($isService | ternary "0.0.0.0" "127.0.0.1") (int .Values.service.port)) -}}
{{- if $isService -}}
{{- $_ := set $service "advertise" (printf "%s.%s.svc" (include "outrider.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- with include "outrider.metricsPort" . -}}
{{- $_ := set $service "metrics" (printf "0.0.0.0:%s" .) -}}
{{- end -}}
{{- $cluster := dict "address" "auto" "auth" "token" "internal_host" "node" -}}
{{- $_ := set $config "service" (merge $service ($config.service | default dict)) -}}
{{- $_ := set $config "cluster" (merge $cluster ($config.cluster | default dict)) -}}
{{- with include "outrider.security" . | fromYaml -}}
{{- $_ := set $config "security" . -}}
{{- end -}}
{{/* JSON, because YAML would write large numbers as 1e+06. */}}
{{- toPrettyJson $config -}}
{{- end -}}

{{/* The section `security` of the configuration: where the pods have the files of the secrets that the values name. */}}
{{- define "outrider.security" -}}
{{- $public := .Values.security.public -}}
{{- $internal := .Values.security.internal -}}
{{- if or $public.tlsSecret $public.tokenSecret }}
public:
  {{- if $public.tlsSecret }}
  cert: /etc/outrider-tls/public/tls.crt
  key: /etc/outrider-tls/public/tls.key
  {{- if $public.clientCertificates }}
  client_ca: /etc/outrider-tls/public/ca.crt
  {{- end }}
  {{- end }}
  {{- if $public.tokenSecret }}
  tokens: /etc/outrider-tls/tokens/tokens
  {{- end }}
{{- end }}
{{- if $internal.tlsSecret }}
internal:
  cert: /etc/outrider-tls/internal/tls.crt
  key: /etc/outrider-tls/internal/tls.key
  ca: /etc/outrider-tls/internal/ca.crt
  name: {{ $internal.name | quote }}
{{- end }}
{{- end -}}

{{/* How `outrider` in a pod that has the public secrets reaches the service. The certificate itself is trusted: who made it is not known. */}}
{{- define "outrider.clientEnv" -}}
{{- $public := .root.Values.security.public -}}
- {name: OUTRIDER_ADDRESS, value: {{ .address | quote }}}
{{- if $public.tlsSecret }}
- {name: OUTRIDER_TLS_CA, value: /etc/outrider-tls/public/tls.crt}
- {name: OUTRIDER_TLS_NAME, value: {{ printf "%s.%s.svc" (include "outrider.fullname" .root) .root.Release.Namespace | quote }}}
{{- if $public.clientCertificates }}
- {name: OUTRIDER_TLS_CERT, value: /etc/outrider-tls/public/tls.crt}
- {name: OUTRIDER_TLS_KEY, value: /etc/outrider-tls/public/tls.key}
{{- end }}
{{- end }}
{{- if $public.tokenSecret }}
- {name: OUTRIDER_TOKEN_FILE, value: /etc/outrider-tls/tokens/tokens}
{{- end }}
{{- end -}}

{{- define "outrider.publicMounts" -}}
{{- with .Values.security.public.tlsSecret }}
- {name: public-tls, mountPath: /etc/outrider-tls/public, readOnly: true}
{{- end }}
{{- with .Values.security.public.tokenSecret }}
- {name: tokens, mountPath: /etc/outrider-tls/tokens, readOnly: true}
{{- end }}
{{- end -}}

{{- define "outrider.publicVolumes" -}}
{{- with .Values.security.public.tlsSecret }}
- name: public-tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .Values.security.public.tokenSecret }}
- name: tokens
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Port of the page of metrics, which the supervisor serves beside the coordinator; empty if there is none. */}}
{{- define "outrider.metricsPort" -}}
{{- if and (eq .Values.mode "service") .Values.service.metricsPort -}}
{{- int .Values.service.metricsPort -}}
{{- end -}}
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
{{- with include "outrider.clientEnv" (dict "root" . "address" (printf "127.0.0.1:%d" (int .Values.service.port))) | fromYamlArray }}
{{- range . }}
export {{ .name }}={{ include "outrider.shellWords" (list .value) }}
{{- end }}
{{- end }}
# In the background, because a shell hears signals only while it waits.
outrider batch {{ include "outrider.shellWords" (concat (list .Values.batch.input .Values.batch.output) .Values.batch.args) }} &
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
