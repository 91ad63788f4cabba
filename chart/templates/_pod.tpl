{{/* What both roles are told of their cluster. */}}
{{- define "tombolo.clusterArgs" -}}
- --cluster-name={{ .Values.cluster.name }}
- --cluster-id={{ .Values.cluster.id }}
{{- with .Values.cluster.clustersetName }}
- --clusterset-name={{ . }}
{{- end }}
- --max-connected-clusters={{ .Values.clustermesh.maxConnectedClusters }}
- --default-global-namespace={{ .Values.clustermesh.defaultGlobalNamespace }}
- --health-address={{ include "tombolo.listen" (list . 9879) }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
{{- end -}}

{{/* The image of Tombolo in a container. */}}
{{- define "tombolo.ownImage" -}}
image: {{ include "tombolo.image" (list .Values.image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* Where and under which limits a pod runs. Takes a list: the root, the values of the component, its name. */}}
{{- define "tombolo.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- $selector := include "tombolo.selector" (list $root (index . 2)) | fromYaml -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
{{- toYaml $values.topologySpreadConstraints | nindent 0 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels: {{ toYaml $selector | nindent 6 }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # Secrets are readable by this group.
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* What a container may do: nothing but run. */}}
{{- define "tombolo.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The pod's own account, for the container of Tombolo alone. */}}
{{- define "tombolo.tokenVolume" -}}
- name: kube-api-access
  projected:
    # Modes are decimal: YAML 1.1 and 1.2 read octals differently.
    defaultMode: 288 # 0440
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3607
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
    - downwardAPI:
        items:
        - path: namespace
          fieldRef:
            apiVersion: v1
            fieldPath: metadata.namespace
{{- end -}}

{{- define "tombolo.tokenMount" -}}
- name: kube-api-access
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* Probes of a role. A start can take as long as it takes to find out who the cluster is. */}}
{{- define "tombolo.probes" -}}
ports:
- name: health
  containerPort: 9879
  protocol: TCP
startupProbe:
  httpGet:
    path: /livez
    port: health
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /livez
    port: health
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* The peers' files and the certificates that they name, in the directory where these files expect them. Takes a list: the name
     of the Secret with the files, the Secrets by the prefix of the certificates. */}}
{{- define "tombolo.peersVolume" -}}
- name: clustermesh
  projected:
    defaultMode: 288 # 0440
    sources:
    - secret:
        name: {{ index . 0 }}
        optional: true
    {{- range $prefix, $secret := index . 1 }}
    - secret:
        name: {{ $secret | quote }}
        optional: true
        items:
        - key: ca.crt
          path: {{ $prefix }}-etcd-client-ca.crt
        - key: tls.crt
          path: {{ $prefix }}-etcd-client.crt
        - key: tls.key
          path: {{ $prefix }}-etcd-client.key
    {{- end }}
{{- end -}}

{{- define "tombolo.peersMount" -}}
- name: clustermesh
  mountPath: /var/lib/cilium/clustermesh
  readOnly: true
{{- end -}}
