{{/* The one pod template. Takes `root`, `group` (head, coordinator or a group of workers) and `settings` (the group's values). */}}
{{- define "outrider.pod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $isHead := eq .group "head" -}}
{{- $isCoordinator := eq .group "coordinator" -}}
{{- $isService := eq $values.mode "service" -}}
{{- $serves := and $isCoordinator $isService -}}
{{- $drain := include "outrider.drainSeconds" $root | int -}}
metadata:
  labels:
    {{- include "outrider.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .group | quote }}
    {{- with .settings.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ printf "%s%s" (include "outrider.config" $root) (include "outrider.jobScript" $root) | sha256sum }}
    {{- with .settings.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "outrider.serviceAccountName" $root | quote }}
  automountServiceAccountToken: {{ and $isHead $values.ray.autoscaling.enabled }}
  {{- if $serves }}
  # A driver finds its Ray node among the processes that it sees.
  shareProcessNamespace: true
  {{- end }}
  terminationGracePeriodSeconds: {{ $isService | ternary (add $drain 30) 30 }}
  securityContext:
    {{- include "outrider.podSecurityContext" $root | nindent 4 }}
  {{- with include "outrider.pullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
  {{- with get $.settings $key }}
  {{ $key }}: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .settings.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" (merge (include "outrider.selector" $root | fromYaml) (dict "app.kubernetes.io/component" $.group)))) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $isHead | ternary "ray-head" "ray-worker" }}
      {{- include "outrider.container" $root | nindent 6 }}
      env:
        {{- include "outrider.env" (dict "root" $root "settings" .settings) | nindent 8 }}
      ports:
        {{- if $isHead }}
        - {name: gcs-server, containerPort: 6379, protocol: TCP}
        - {name: dashboard, containerPort: 8265, protocol: TCP}
        {{- end }}
        - {name: metrics, containerPort: 8080, protocol: TCP}
      resources:
        {{- include "outrider.resources" .settings.resources | nindent 8 }}
      readinessProbe:
        httpGet: {path: /api/healthz, port: 52365}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 10
      livenessProbe:
        httpGet: {path: /api/healthz, port: 52365}
        initialDelaySeconds: 30
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 30
      {{- if $isService }}
      lifecycle:
        preStop:
          exec:
            {{- if $serves }}
            # Ray ends after the service that runs on it; the pod's grace period bounds the wait.
            command: [bash, -c, "while [ -e /run/outrider/ready.json ]; do sleep 1; done"]
            {{- else }}
            # Running requests need this node while the service drains.
            command: [sleep, {{ add $drain 5 | toString | quote }}]
            {{- end }}
      {{- end }}
      volumeMounts:
        {{- include "outrider.mounts" (dict "root" $root "group" .group) | nindent 8 }}
    {{- if $serves }}
    - name: serve
      {{- include "outrider.container" $root | nindent 6 }}
      command: [outrider, serve]
      args: [--config, /etc/outrider/service.json, --ready-file, /run/outrider/ready.json, --log-level, {{ $values.logLevel }}]
      env:
        {{- include "outrider.env" (dict "root" $root "settings" .settings "more" (include "outrider.serveEnv" $root)) | nindent 8 }}
      ports:
        - {name: grpc, containerPort: {{ int $values.service.port }}, protocol: TCP}
        {{- with include "outrider.metricsPort" $root }}
        - {name: service-metrics, containerPort: {{ . }}, protocol: TCP}
        {{- end }}
      resources:
        {{- include "outrider.resources" .settings.serve.resources | nindent 8 }}
      {{- if $values.security.public.tlsSecret }}
      # The kubelet's own probe speaks no TLS.
      startupProbe:
        exec: {command: [outrider, health]}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: {{ divf (include "outrider.startSeconds" $root | float64) 10 | ceil | int }}
      readinessProbe:
        exec: {command: [outrider, health]}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: 2
      {{- else }}
      startupProbe:
        grpc: {port: {{ int $values.service.port }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: {{ divf (include "outrider.startSeconds" $root | float64) 10 | ceil | int }}
      readinessProbe:
        grpc: {port: {{ int $values.service.port }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- end }}
      # Whether the port is open, and no more: a service without its target is restarted by nobody but its supervisor.
      livenessProbe:
        tcpSocket: {port: {{ int $values.service.port }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 12
      volumeMounts:
        {{- include "outrider.mounts" (dict "root" $root "group" .group) | nindent 8 }}
        {{- if $values.ray.tls.enabled }}
        - {name: ray-tls, mountPath: /etc/ray/tls, readOnly: true}
        {{- end }}
    {{- end }}
  volumes:
    {{- include "outrider.volumes" (dict "root" $root "group" .group) | nindent 4 }}
    {{- if and $serves $values.ray.tls.enabled }}
    # KubeRay's own volume and secret; named here because KubeRay mounts it for Ray's container only.
    - name: ray-tls
      secret: {secretName: {{ printf "ray-worker-secret-%s" (include "outrider.fullname" $root) }}}
    {{- end }}
{{- end -}}

{{/* Amounts as text: where a custom resource has them, Kubernetes takes no number with a fraction. */}}
{{- define "outrider.resources" -}}
{{- range $part, $amounts := . }}
{{ $part }}:
  {{- range $kind, $amount := $amounts }}
  {{ $kind }}: {{ $amount | toString | quote }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "outrider.container" -}}
image: {{ include "outrider.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "outrider.containerSecurityContext" . | nindent 2 }}
{{- end -}}

{{- define "outrider.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ int .Values.podSecurity.runAsUser }}
runAsGroup: {{ int .Values.podSecurity.runAsGroup }}
fsGroup: {{ int .Values.podSecurity.runAsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "outrider.containerSecurityContext" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "outrider.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "outrider.authEnv" -}}
- {name: RAY_AUTH_MODE, value: token}
{{- with include "outrider.tokenSecret" . }}
- name: RAY_AUTH_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . | quote }}, key: auth_token}
{{- end }}
{{- end -}}

{{/* Variables of a container of Ray, and `more`. Those of the group's values stand in place of the chart's: Kubernetes takes each name once. */}}
{{- define "outrider.env" -}}
{{- $given := .settings.env | default list -}}
{{- $names := list -}}
{{- range $given -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $own := list -}}
{{- range concat (include "outrider.rayEnv" .root | fromYamlArray) (.more | default "[]" | fromYamlArray) -}}
{{- if not (has .name $names) -}}
{{- $own = append $own . -}}
{{- end -}}
{{- end -}}
{{- concat $own $given | toYaml -}}
{{- end -}}

{{/* How `serve` finds the cluster, and commands in its container find the service. */}}
{{- define "outrider.serveEnv" -}}
- name: RAY_ADDRESS
  value: {{ printf "%s-head-svc.%s.svc:6379" (include "outrider.fullname" .) .Release.Namespace }}
{{ include "outrider.clientEnv" (dict "root" . "address" (printf "127.0.0.1:%d" (int .Values.service.port))) }}
{{- if .Values.ray.tls.enabled }}
- {name: RAY_USE_TLS, value: "1"}
- {name: RAY_TLS_SERVER_CERT, value: /etc/ray/tls/tls.crt}
- {name: RAY_TLS_SERVER_KEY, value: /etc/ray/tls/tls.key}
- {name: RAY_TLS_CA_CERT, value: /etc/ray/tls/ca.crt}
{{- end }}
{{- end -}}

{{- define "outrider.rayEnv" -}}
{{ include "outrider.authEnv" . }}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
# Ray's own value, 15, makes event loops as nice as the drafters' arithmetic.
- {name: RAY_worker_niceness, value: "0"}
- {name: PYTHONUNBUFFERED, value: "1"}
# gRPC's own lines take no notice of level and form of the actors' logs.
- {name: GRPC_VERBOSITY, value: ERROR}
# The root file system is read-only: everything that is written goes to /tmp and /cache.
- {name: HOME, value: /tmp}
- {name: USER, value: outrider}
- {name: XDG_CACHE_HOME, value: /cache}
- {name: HF_HOME, value: /cache/huggingface}
{{- if .Values.models.offline }}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: TRANSFORMERS_OFFLINE, value: "1"}
{{- end }}
{{- with .Values.models.hubTokenSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . | quote }}, key: token}
{{- end }}
{{- end -}}

{{/* Whether the entrypoint of a job runs in this group. */}}
{{- define "outrider.runsJob" -}}
{{- if or (and (eq .root.Values.mode "batch") (eq .group "coordinator")) (and (eq .root.Values.mode "train") (eq .group .root.Values.train.group)) -}}
true
{{- end -}}
{{- end -}}

{{- define "outrider.mounts" -}}
{{- $values := .root.Values -}}
- {name: tmp, mountPath: /tmp}
- {name: shared-mem, mountPath: /dev/shm}
- {name: cache, mountPath: /cache}
{{- if or (eq .group "coordinator") (include "outrider.runsJob" .) }}
- {name: config, mountPath: /etc/outrider, readOnly: true}
- {name: run, mountPath: /run/outrider}
{{- end }}
{{- if $values.models.existingClaim }}
- {name: models, mountPath: {{ $values.models.mountPath | quote }}, readOnly: true}
{{- end }}
{{- if and $values.data.existingClaim (include "outrider.runsJob" .) }}
- {name: data, mountPath: {{ $values.data.mountPath | quote }}}
{{- end }}
{{- if eq .group "coordinator" }}
{{- with include "outrider.publicMounts" .root }}
{{- . }}
{{- end }}
{{- end }}
{{- if and $values.security.internal.tlsSecret (ne .group "head") }}
- {name: internal-tls, mountPath: /etc/outrider-tls/internal, readOnly: true}
{{- end }}
{{- range $index, $secret := $values.secretMounts }}
- {name: {{ printf "secret-%d" $index }}, mountPath: {{ $secret.mountPath | quote }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "outrider.volumes" -}}
{{- $values := .root.Values -}}
- {name: tmp, emptyDir: {}}
# Ray's object store; no token passes through it.
- {name: shared-mem, emptyDir: {medium: Memory, sizeLimit: 256Mi}}
- {name: cache, emptyDir: {sizeLimit: {{ $values.cache.sizeLimit | quote }}}}
{{- if or (eq .group "coordinator") (include "outrider.runsJob" .) }}
- name: config
  configMap: {name: {{ include "outrider.fullname" .root | quote }}}
- {name: run, emptyDir: {}}
{{- end }}
{{- with $values.models.existingClaim }}
- name: models
  persistentVolumeClaim: {claimName: {{ . | quote }}, readOnly: true}
{{- end }}
{{- if and $values.data.existingClaim (include "outrider.runsJob" .) }}
- name: data
  persistentVolumeClaim: {claimName: {{ $values.data.existingClaim | quote }}}
{{- end }}
{{- if eq .group "coordinator" }}
{{- with include "outrider.publicVolumes" .root }}
{{- . }}
{{- end }}
{{- end }}
{{- if and $values.security.internal.tlsSecret (ne .group "head") }}
- name: internal-tls
  secret: {secretName: {{ $values.security.internal.tlsSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- range $index, $secret := $values.secretMounts }}
- name: {{ printf "secret-%d" $index }}
  secret: {secretName: {{ $secret.name | quote }}}
{{- end }}
{{- end -}}
