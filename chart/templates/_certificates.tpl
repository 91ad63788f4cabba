{{/* The authority, made or found once for all templates: a dict with Cert, Key, expires (seconds since 1970, 0 when unknown) and
     ours (whether the Secret is this release's to write). Sets it as `authority` of the root. */}}
{{- define "tombolo.authority" -}}
{{- if not (hasKey . "authority") -}}
{{- $given := .Values.tls.ca -}}
{{- if ne (empty $given.cert) (empty $given.key) -}}
{{- fail "tls.ca: cert and key belong together; set both, or none" -}}
{{- end -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace "tombolo-ca" -}}
{{- $authority := dict -}}
{{- if $given.cert -}}
{{- $made := buildCustomCert $given.cert $given.key -}}
{{- $authority = dict "Cert" $made.Cert "Key" $made.Key "expires" 0 "ours" true -}}
{{- else if $found -}}
{{- $annotations := $found.metadata.annotations | default dict -}}
{{- $data := $found.data | default dict -}}
{{- if or (empty (index $data "ca.crt")) (empty (index $data "ca.key")) -}}
{{- fail (printf "Secret %s/tombolo-ca: ca.crt and ca.key: expected both; complete it, or delete it to have a new authority" .Release.Namespace) -}}
{{- end -}}
{{- $made := buildCustomCert (index $data "ca.crt") (index $data "ca.key") -}}
{{- $ours := eq (index $annotations "meta.helm.sh/release-name" | default "") .Release.Name -}}
{{- $expires := index $annotations "tombolo/expires" | default "0" | int64 -}}
{{- $authority = dict "Cert" $made.Cert "Key" $made.Key "expires" $expires "ours" $ours -}}
{{- else -}}
{{- $days := int $given.certValidityDuration -}}
{{- $made := genCAWithKey (printf "Tombolo CA of %s" .Values.cluster.name) $days (genPrivateKey "ecdsa") -}}
{{- $expires := add (now | unixEpoch | int64) (mul $days 86400) -}}
{{- $authority = dict "Cert" $made.Cert "Key" $made.Key "expires" $expires "ours" true -}}
{{- end -}}
{{- $_ := set . "authority" $authority -}}
{{- end -}}
{{- end -}}

{{/* The Secret with one certificate: the one that is there while it serves, else a new one. Takes a list: the root, the name of the
     Secret, the common name, DNS names, IP addresses. */}}
{{- define "tombolo.certificate" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $cn := index . 2 -}}
{{- $dns := index . 3 -}}
{{- $ips := index . 4 -}}
{{- include "tombolo.authority" $root -}}
{{- $authority := $root.authority -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $days := int $root.Values.clustermesh.apiserver.tls.auto.certValidityDuration -}}
{{- if $authority.expires -}}
{{- $left := div (sub $authority.expires $now) 86400 | int -}}
{{- if le $left 0 -}}
{{- fail (printf "Secret %s/tombolo-ca: the authority expired; delete it to have a new one, and give that to the other clusters" $root.Release.Namespace) -}}
{{- end -}}
{{- $days = min $days $left | int -}}
{{- end -}}
{{- $for := dict "cn" $cn "dns" $dns "ips" $ips "ca" $authority.Cert | toJson | sha256sum -}}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace $name -}}
{{- $annotations := dict -}}
{{- $data := dict -}}
{{- if $found -}}
{{- $annotations = $found.metadata.annotations | default dict -}}
{{- $data = $found.data | default dict -}}
{{- end -}}
{{- $expires := index $annotations "tombolo/expires" | default "0" | int64 -}}
{{- $same := eq (index $annotations "tombolo/issued-for" | default "") $for -}}
{{- $complete := and (index $data "tls.crt") (index $data "tls.key") (index $data "ca.crt") -}}
{{- $soon := add $now (mul $days 28800) -}}
{{- if not (and $same $complete (gt $expires $soon)) -}}
{{- $ca := buildCustomCert (b64enc $authority.Cert) (b64enc $authority.Key) -}}
{{- $made := genSignedCertWithKey $cn $ips $dns $days $ca (genPrivateKey "ecdsa") -}}
{{- $expires = add $now (mul $days 86400) -}}
{{- $data = dict "ca.crt" (b64enc $authority.Cert) "tls.crt" (b64enc $made.Cert) "tls.key" (b64enc $made.Key) -}}
{{- end -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{ include "tombolo.labels" (list $root "mesh") | nindent 4 }}
  annotations:
    # Whom it is for, and until when (seconds since 1970): by these an upgrade knows whether it can stay.
    tombolo/issued-for: {{ $for | quote }}
    tombolo/expires: {{ $expires | quote }}
type: kubernetes.io/tls
data:
  {{- range $key := list "ca.crt" "tls.crt" "tls.key" }}
  {{ $key }}: {{ index $data $key }}
  {{- end }}
{{- end -}}

{{/* The Secrets by user, as JSON. */}}
{{- define "tombolo.certificateSecrets" -}}
{{- $secrets := dict -}}
{{- range $user := list "server" "admin" "remote" "local" -}}
{{- $existing := (index $.Values.clustermesh.apiserver.tls $user).existingSecret -}}
{{- $_ := set $secrets $user ($existing | default (printf "clustermesh-apiserver-%s-cert" $user)) -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}
