{{/* Names and labels. KubeRay and Ray append to them, and KubeRay cuts secrets' names at 50. */}}

{{- define "outrider.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "outrider.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "outrider.name" .) .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "outrider.name" .) -}}
{{- end -}}
{{- end -}}

{{- define "outrider.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* What finds every pod of the release. */}}
{{- define "outrider.selector" -}}
app.kubernetes.io/name: {{ include "outrider.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: outrider
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "outrider.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "outrider.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The secret with Ray's token. The one that KubeRay makes has the cluster's name, which only a service knows beforehand. */}}
{{- define "outrider.tokenSecret" -}}
{{- if .Values.ray.auth.existingSecret -}}
{{- .Values.ray.auth.existingSecret -}}
{{- else if eq .Values.mode "service" -}}
{{- include "outrider.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* The groups of workers. Not in values.yaml: Helm merges maps, and the group would stay beside the user's own. */}}
{{- define "outrider.workers" -}}
{{- if .Values.workers -}}
{{- toYaml .Values.workers -}}
{{- else -}}
models:
  replicas: 1
  actors: 2
  resources:
    requests: {cpu: "2", memory: 4Gi}
    limits: {cpu: "2", memory: 4Gi}
{{- end -}}
{{- end -}}
