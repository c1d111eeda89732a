{{/* What the schema cannot say: values that contradict each other. Every template object calls it once, through rayClusterSpec. */}}
{{- define "outrider.check" -}}
{{- $name := include "outrider.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$" $name) -}}
{{- fail (printf "the name %q is not one of at most 40 lower-case letters, digits and hyphens that begins with a letter: set fullnameOverride" $name) -}}
{{- end -}}
{{- $workers := include "outrider.workers" . | fromYaml -}}
{{- include "outrider.checkResources" (list "head.resources" .Values.head.resources) -}}
{{- include "outrider.checkResources" (list "coordinator.resources" .Values.coordinator.resources) -}}
{{- include "outrider.checkResources" (list "coordinator.serve.resources" .Values.coordinator.serve.resources) -}}
{{- include "outrider.checkResources" (list "job.resources" .Values.job.resources) -}}
{{- include "outrider.checkResources" (list "ray.autoscaling.resources" .Values.ray.autoscaling.resources) -}}
{{- include "outrider.checkEnv" (list "head.env" .Values.head.env) -}}
{{- include "outrider.checkEnv" (list "coordinator.env" .Values.coordinator.env) -}}
{{- range $group, $settings := $workers -}}
{{- include "outrider.checkEnv" (list (printf "workers.%s.env" $group) $settings.env) -}}
{{- include "outrider.checkResources" (list (printf "workers.%s.resources" $group) $settings.resources) -}}
{{- include "outrider.checkGroup" (dict "root" $ "group" $group "settings" $settings) -}}
{{- end -}}
{{- if ne .Values.mode "train" -}}
{{- include "outrider.checkActors" . -}}
{{- end -}}
{{- if eq .Values.mode "batch" -}}
{{- range $key := list "input" "output" -}}
{{- if not (get $.Values.batch $key) -}}
{{- fail (printf "batch.%s is missing: mode is batch" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.mode "train" -}}
{{- if not .Values.train.args -}}
{{- fail "train.args is missing: mode is train" -}}
{{- end -}}
{{- if not (hasKey $workers .Values.train.group) -}}
{{- fail (printf "train.group is %q, and no group of workers is called so; there are: %s" .Values.train.group (keys $workers | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.grpcRoute.enabled (not .Values.grpcRoute.parentRefs) -}}
{{- fail "grpcRoute.parentRefs is empty: name the Gateway that the route attaches to" -}}
{{- end -}}
{{- if and .Values.grpcRoute.enabled (ne .Values.mode "service") -}}
{{- fail (printf "grpcRoute.enabled is true, and mode %s has no Service for clients" .Values.mode) -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not (include "outrider.metricsPort" .)) -}}
{{- fail "prometheusRule.enabled is true, and there is no page of metrics: it needs mode service and service.metricsPort" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress.enabled .Values.ray.autoscaling.enabled (not .Values.networkPolicy.egress.rules) -}}
{{- fail "networkPolicy.egress.rules is empty: the autoscaler must reach the Kubernetes API" -}}
{{- end -}}
{{- if and .Values.security.public.clientCertificates (not .Values.security.public.tlsSecret) -}}
{{- fail "security.public.clientCertificates is true, and security.public.tlsSecret names no secret: only TLS asks clients for certificates" -}}
{{- end -}}
{{- if and (eq .Values.mode "train") (or .Values.security.public.tlsSecret .Values.security.public.tokenSecret .Values.security.internal.tlsSecret) -}}
{{- fail "security is set, and mode train serves nobody" -}}
{{- end -}}
{{- include "outrider.checkMounts" . -}}
{{- range $key := list "port" "metricsPort" -}}
{{- $port := get $.Values.service $key | int -}}
{{- if has $port (list 8080 52365) -}}
{{- fail (printf "service.%s is %d, where Ray listens in the same pod: take another" $key $port) -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.service.port) (int .Values.service.metricsPort) -}}
{{- fail (printf "service.port and service.metricsPort are both %d" (int .Values.service.port)) -}}
{{- end -}}
{{- if and .Values.models.offline .Values.models.hubTokenSecret -}}
{{- fail "models.hubTokenSecret is set, and models.offline forbids downloads" -}}
{{- end -}}
{{- end -}}

{{/* Kubernetes takes each name once. */}}
{{- define "outrider.checkEnv" -}}
{{- $place := index . 0 -}}
{{- $names := list -}}
{{- range index . 1 -}}
{{- if has .name $names -}}
{{- fail (printf "%s names %s twice" $place .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}

{{/* Kubernetes mounts one volume at a path. */}}
{{- define "outrider.checkMounts" -}}
{{- $taken := dict -}}
{{- range list "/tmp" "/dev/shm" "/cache" "/etc/outrider" "/run/outrider" "/etc/outrider-tls/public" "/etc/outrider-tls/tokens" "/etc/outrider-tls/internal" "/etc/ray/tls" -}}
{{- $_ := set $taken . "the chart" -}}
{{- end -}}
{{- $asked := list -}}
{{- if .Values.models.existingClaim -}}
{{- $asked = append $asked (list "models.mountPath" .Values.models.mountPath) -}}
{{- end -}}
{{- if and .Values.data.existingClaim (ne .Values.mode "service") -}}
{{- $asked = append $asked (list "data.mountPath" .Values.data.mountPath) -}}
{{- end -}}
{{- range $index, $secret := .Values.secretMounts -}}
{{- $asked = append $asked (list (printf "secretMounts[%d].mountPath" $index) $secret.mountPath) -}}
{{- end -}}
{{- range $asked -}}
{{- $path := index . 1 | clean -}}
{{- if hasKey $taken $path -}}
{{- fail (printf "%s is %s, where %s mounts something, too: take another" (index . 0) (index . 1) (get $taken $path)) -}}
{{- end -}}
{{- $_ := set $taken $path (index . 0) -}}
{{- end -}}
{{- end -}}

{{/* Kubernetes makes no pod that requests more than its limit, or another number of devices; there are no parts of one. */}}
{{- define "outrider.checkResources" -}}
{{- $place := index . 0 -}}
{{- $limits := (index . 1).limits -}}
{{- range $kind, $limit := $limits -}}
{{- $amount := include "outrider.quantity" $limit | float64 -}}
{{- if and (contains "/" $kind) (ne $amount (floor $amount)) -}}
{{- fail (printf "%s limits %s to %v, which is no whole number" $place $kind $limit) -}}
{{- end -}}
{{- end -}}
{{- range $kind, $request := (index . 1).requests -}}
{{- if and (contains "/" $kind) (ne (include "outrider.quantity" $request) (include "outrider.quantity" (get $limits $kind | default 0))) -}}
{{- fail (printf "%s requests %v of %s, and limits it to %v: both must be the same" $place $request $kind (get $limits $kind | default "nothing")) -}}
{{- end -}}
{{- if hasKey $limits $kind -}}
{{- $limit := get $limits $kind -}}
{{- if gt (include "outrider.quantity" $request | float64) (include "outrider.quantity" $limit | float64) -}}
{{- fail (printf "%s requests %v of %s, and limits it to %v" $place $request $kind $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity as a number. */}}
{{- define "outrider.quantity" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $of := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $of $unit) -}}
{{- end -}}

{{- define "outrider.checkGroup" -}}
{{- $least := dig "minReplicas" .settings.replicas .settings | int -}}
{{- $most := dig "maxReplicas" .settings.replicas .settings | int -}}
{{- if .root.Values.ray.autoscaling.enabled -}}
{{- if or (gt $least (int .settings.replicas)) (lt $most (int .settings.replicas)) -}}
{{- fail (printf "workers.%s.replicas is %d, and not between minReplicas %d and maxReplicas %d" .group (int .settings.replicas) $least $most) -}}
{{- end -}}
{{- else if or (hasKey .settings "minReplicas") (hasKey .settings "maxReplicas") -}}
{{- fail (printf "workers.%s has minReplicas or maxReplicas, and ray.autoscaling.enabled is false" .group) -}}
{{- end -}}
{{- end -}}

{{/* Every actor that names groups must fit into them: Ray would wait for room until the placement timeout. */}}
{{- define "outrider.checkActors" -}}
{{- $workers := include "outrider.workers" . | fromYaml -}}
{{- $wanted := dict -}}
{{- range $kind := list "targets" "drafters" -}}
{{- range $index, $actor := dig $kind list $.Values.config -}}
{{- $place := printf "config.%s[%d]" $kind $index -}}
{{- $start := get $actor "replicas" | default (get $actor "min_replicas" | default 1) | int -}}
{{- $most := get $actor "max_replicas" | default $start | int -}}
{{- if or (gt (get $actor "min_replicas" | default 1 | int) $start) (lt $most $start) -}}
{{- fail (printf "%s: min_replicas, replicas and max_replicas must rise in this order" $place) -}}
{{- end -}}
{{- range $group, $amount := $actor.resources -}}
{{- if not (hasKey $workers $group) -}}
{{- fail (printf "%s.resources names %q, and no group of workers is called so; there are: %s" $place $group (keys $workers | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $settings := get $workers $group -}}
{{- $gpus := include "outrider.gpus" $settings | float64 -}}
{{- $onGpu := hasPrefix "cuda" (dig "device" "cpu" $actor) -}}
{{- $wantedGpus := dig "num_gpus" nil $actor -}}
{{- $needsGpus := kindIs "invalid" $wantedGpus | ternary ($onGpu | ternary 1.0 0.0) (float64 $wantedGpus) -}}
{{- if gt $needsGpus $gpus -}}
{{- fail (printf "%s needs %v GPUs, and a pod of workers.%s has %v: add them to its resources.limits" $place $needsGpus $group $gpus) -}}
{{- end -}}
{{- $cpus := include "outrider.cpus" $settings | float64 -}}
{{- $needsCpus := dig "num_cpus" 1 $actor | float64 -}}
{{- if gt $needsCpus $cpus -}}
{{- fail (printf "%s needs %v CPUs, and a pod of workers.%s has %v" $place $needsCpus $group $cpus) -}}
{{- end -}}
{{- if gt (float64 $amount) (float64 $settings.actors) -}}
{{- fail (printf "%s.resources asks for %v of %q, and a pod of workers.%s offers %v (actors)" $place $amount $group $group $settings.actors) -}}
{{- end -}}
{{- range $kind, $each := dict "" $amount "GPUs" $needsGpus "CPUs" $needsCpus -}}
{{- $key := printf "%s/%s" $group $kind -}}
{{- $_ := set $wanted $key (addf (mulf $each $most) (get $wanted $key | default 0.0)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $amount := $wanted -}}
{{- $group := splitList "/" $key | first -}}
{{- $kind := splitList "/" $key | last -}}
{{- $settings := get $workers $group -}}
{{- $pods := dig "maxReplicas" $settings.replicas $settings -}}
{{- $offers := dict "" $settings.actors "GPUs" (include "outrider.gpus" $settings) "CPUs" (include "outrider.cpus" $settings) -}}
{{- $room := mulf $pods (get $offers $kind | float64) -}}
{{- if gt (round $amount 6) $room -}}
{{- if $kind -}}
{{- fail (printf "the actors of workers.%s need %v %s together, and its pods have %v" $group $amount $kind $room) -}}
{{- end -}}
{{- fail (printf "the actors of the configuration ask for %v of %q together, and workers.%s has room for %v (pods times actors)" $amount $group $group $room) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* GPUs of a pod, as KubeRay counts them. */}}
{{- define "outrider.gpus" -}}
{{- $found := 0 -}}
{{- range $kind, $amount := .resources.limits -}}
{{- if hasSuffix "gpu" $kind -}}
{{- $found = $amount -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* CPUs of a pod, as KubeRay counts them: the limit, rounded up. */}}
{{- define "outrider.cpus" -}}
{{- $limit := toString .resources.limits.cpu -}}
{{- if hasSuffix "m" $limit -}}
{{- divf (trimSuffix "m" $limit | float64) 1000 | ceil -}}
{{- else -}}
{{- $limit | float64 | ceil -}}
{{- end -}}
{{- end -}}
