{{/* Labels that select the pods of a component. Takes a list: the root, the component. */}}
{{- define "tombolo.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tombolo
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object. `tombolo status` finds pods by the name. Takes a list: the root, the component. */}}
{{- define "tombolo.labels" -}}
{{- $root := index . 0 -}}
{{ include "tombolo.selector" . }}
app.kubernetes.io/part-of: tombolo
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end -}}

{{/* A reference to an image. Takes a list: the values of the image, the tag when they have none. */}}
{{- define "tombolo.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end -}}
{{- end -}}

{{/* Name by which pods of this cluster reach its mesh etcd, and common name of its certificate. */}}
{{- define "tombolo.serverName" -}}
clustermesh-apiserver.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* Whether the mesh role copies what peers publish: "true" or nothing. */}}
{{- define "tombolo.copies" -}}
{{- if and .Values.clustermesh.useAPIServer .Values.clustermesh.apiserver.kvstoremesh.enabled }}true{{ end -}}
{{- end -}}

{{/* Whether peers have users of their own in the etcd: "true" or nothing. */}}
{{- define "tombolo.usersOfPeers" -}}
{{- if ne .Values.clustermesh.apiserver.tls.authMode "legacy" }}true{{ end -}}
{{- end -}}

{{/* Where a process listens. Takes a list: the root, the port. */}}
{{- define "tombolo.listen" -}}
{{- $address := (index . 0).Values.bindAddress -}}
{{- if contains ":" $address }}[{{ $address }}]{{ else }}{{ $address }}{{ end }}:{{ index . 1 }}
{{- end -}}
