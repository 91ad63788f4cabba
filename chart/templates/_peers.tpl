{{/* The peers as JSON: {"peers": [...]}, by name, without this cluster and without those that are disabled. */}}
{{- define "tombolo.peers" -}}
{{- $clusters := .Values.clustermesh.config.clusters -}}
{{- $named := dict -}}
{{- if kindIs "map" $clusters -}}
{{- range $name, $peer := $clusters }}{{ $_ := set $named $name ($peer | default dict) }}{{ end -}}
{{- else -}}
{{- range $peer := $clusters -}}
{{- if hasKey $named $peer.name }}{{ fail (printf "clustermesh.config.clusters: %s is there twice; name each cluster once" $peer.name) }}{{ end -}}
{{- $_ := set $named $peer.name $peer -}}
{{- end -}}
{{- end -}}
{{- $peers := list -}}
{{- range $name := keys $named | sortAlpha -}}
{{- $peer := get $named $name -}}
{{- if and (ne $name $.Values.cluster.name) (dig "enabled" true $peer) -}}
{{- if and (not $peer.address) (not $peer.ips) -}}
{{- fail (printf "clustermesh.config.clusters: %s: address and ips: missing; set the address of its Service clustermesh-apiserver, or its IPs" $name) -}}
{{- end -}}
{{- if and $peer.address $peer.ips -}}
{{- fail (printf "clustermesh.config.clusters: %s: both address and ips; set one of them" $name) -}}
{{- end -}}
{{- $peers = append $peers (merge (dict "name" $name) $peer) -}}
{{- end -}}
{{- end -}}
{{- dict "peers" $peers | toJson -}}
{{- end -}}

{{/* The files of all peers for one reader, and the TLS files that only one peer has. Takes a list: the root, the endpoint instead of
     the peers' own, the prefix of the certificates. */}}
{{- define "tombolo.peerFiles" -}}
{{- $root := index . 0 -}}
{{- $endpoint := index . 1 -}}
{{- $common := index . 2 -}}
{{- $domain := $root.Values.clustermesh.config.domain -}}
{{- $directory := "/var/lib/cilium/clustermesh" -}}
{{- range $peer := (include "tombolo.peers" $root | fromJson).peers -}}
{{- $tls := ternary dict ($peer.tls | default dict) (ne $endpoint "") -}}
{{- $host := $peer.address | default (printf "%s.%s" $peer.name $domain) -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $own := printf "https://%s:%v" $host (int ($peer.port | default 2379)) -}}
{{- $aliases := and (eq $endpoint "") $peer.ips -}}
{{ $peer.name | quote }}: |
  endpoints:
  - {{ $endpoint | default $own }}
  trusted-ca-file: {{ $directory }}/{{ ternary (printf "%s.etcd-client-ca.crt" $peer.name) (printf "%s-etcd-client-ca.crt" $common) (not (empty $tls.caCert)) }}
  cert-file: {{ $directory }}/{{ ternary (printf "%s.etcd-client.crt" $peer.name) (printf "%s-etcd-client.crt" $common) (not (empty $tls.cert)) }}
  key-file: {{ $directory }}/{{ ternary (printf "%s.etcd-client.key" $peer.name) (printf "%s-etcd-client.key" $common) (not (empty $tls.cert)) }}
  {{- if $aliases }}
  cilium-host-aliases:
  - hostname: {{ $host }}
    ips:
    {{- range $aliases }}
    - {{ . | quote }}
    {{- end }}
  {{- end }}
{{- with $tls.caCert }}
{{ $peer.name }}.etcd-client-ca.crt: {{ b64dec . | quote }}
{{- end }}
{{- with $tls.cert }}
{{ $peer.name }}.etcd-client.crt: {{ b64dec . | quote }}
{{ $peer.name }}.etcd-client.key: {{ b64dec $tls.key | quote }}
{{- end }}
{{ end -}}
{{- end -}}
