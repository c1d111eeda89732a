{{/* The spec of the Ray cluster, of a service and of a job alike. */}}
{{- define "outrider.rayClusterSpec" -}}
{{- include "outrider.check" . -}}
rayVersion: {{ .Values.ray.version | quote }}
authOptions:
  mode: token
  {{- with .Values.ray.auth.existingSecret }}
  secretName: {{ . | quote }}
  {{- end }}
{{- if .Values.ray.tls.enabled }}
tlsOptions: {enabled: true}
{{- end }}
{{- if eq .Values.mode "service" }}
# A changed pod template takes effect: KubeRay replaces the pods.
upgradeStrategy: {type: Recreate}
{{- end }}
{{- if .Values.ray.autoscaling.enabled }}
enableInTreeAutoscaling: true
autoscalerOptions:
  # With v2 KubeRay sets restartPolicy Never, and `outrider serve` would not be started again.
  version: v1
  idleTimeoutSeconds: {{ int .Values.ray.autoscaling.idleTimeoutSeconds }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  resources:
    {{- include "outrider.resources" .Values.ray.autoscaling.resources | nindent 4 }}
  securityContext:
    {{- include "outrider.containerSecurityContext" . | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end }}
headGroupSpec:
  # No actor is placed on the head.
  resources: {CPU: "0"}
  rayStartParams:
    {{- include "outrider.rayStartParams" . | nindent 4 }}
    dashboard-host: 0.0.0.0
  template:
    {{- include "outrider.pod" (dict "root" . "group" "head" "settings" .Values.head) | nindent 4 }}
workerGroupSpecs:
  {{- if ne .Values.mode "train" }}
  - groupName: coordinator
    replicas: 1
    minReplicas: 1
    maxReplicas: 1
    resources: {CPU: "0", coordinator: "1"}
    rayStartParams:
      {{- include "outrider.rayStartParams" . | nindent 6 }}
    template:
      {{- include "outrider.pod" (dict "root" . "group" "coordinator" "settings" .Values.coordinator) | nindent 6 }}
  {{- end }}
  {{- range $group, $settings := include "outrider.workers" . | fromYaml }}
  - groupName: {{ $group | quote }}
    replicas: {{ int $settings.replicas }}
    minReplicas: {{ dig "minReplicas" $settings.replicas $settings | int }}
    maxReplicas: {{ dig "maxReplicas" $settings.replicas $settings | int }}
    resources:
      {{ $group | quote }}: {{ int $settings.actors | toString | quote }}
    rayStartParams:
      {{- include "outrider.rayStartParams" $ | nindent 6 }}
    template:
      {{- include "outrider.pod" (dict "root" $ "group" $group "settings" $settings) | nindent 6 }}
  {{- end }}
{{- end -}}

{{- define "outrider.rayStartParams" -}}
# Bytes; Ray refuses less than 75 MiB.
object-store-memory: "104857600"
{{- end -}}
