{{- /* The name of everything: that of the release, with holdfast in it. */ -}}
{{- define "holdfast.name" -}}
{{- if contains "holdfast" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-holdfast" (.Release.Name | trunc 54 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* Whether all pods would have the same state volume; an emptyDir or ephemeral one is each pod's own. */ -}}
{{- define "holdfast.oneVolume" -}}
{{- $volume := .Values.stateVolume -}}
{{- if and $volume (not (hasKey $volume "emptyDir")) (not (hasKey $volume "ephemeral")) -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail "stateVolume is for one replica: SQLite files cannot be shared by pods" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{- /* The configuration, once it is seen that the pod's ports and probes can reach it. */ -}}
{{- define "holdfast.config" -}}
{{- $config := fromYaml .Values.config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "config is no YAML: %s" $config.Error) -}}
{{- end -}}
{{- if not (contains "0.0.0.0:8080" (toString $config.listen)) -}}
{{- fail "config must say listen: 0.0.0.0:8080, which is where the Service sends requests" -}}
{{- end -}}
{{- if ne "0.0.0.0:9901" (toString $config.admin) -}}
{{- fail "config must say admin: 0.0.0.0:9901, which is where probes and Prometheus ask" -}}
{{- end -}}
{{- .Values.config -}}
{{- end -}}
