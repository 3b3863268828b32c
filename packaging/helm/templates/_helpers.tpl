{{- define "signet.fullname" -}}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- .Values.fullnameOverride | default $own | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "signet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "signet.labels" -}}
{{ include "signet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "signet.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "signet.claim" -}}
{{ .Values.store.embedded.existingClaim | default (printf "%s-data" (include "signet.fullname" .)) }}
{{- end }}

{{- define "signet.serviceAccount" -}}
{{- $own := ternary (include "signet.fullname" .) "default" .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default $own }}
{{- end }}

{{- define "signet.isEmbedded" -}}
{{- if eq .Values.store.kind "embedded" }}yes{{ end }}
{{- end }}

{{- define "signet.hasSealKeyFile" -}}
{{- if eq .Values.sealKey.delivery "file" }}yes{{ end }}
{{- end }}

{{- define "signet.hasSeveralPods" -}}
{{- if and (eq .Values.store.kind "postgresql") (gt (int .Values.store.postgresql.replicas) 1) }}yes{{ end }}
{{- end }}

{{/* The fields of a pod that the server and the setup job share. */}}
{{- define "signet.pod" -}}
serviceAccountName: {{ include "signet.serviceAccount" . }}
automountServiceAccountToken: false
# The variables of a Service named signet-… begin with SIGNET_, as those of the server do.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  # Change the group of the data volume once. A change at every start would open the store's files to the group.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "signet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Environment and volumes of the server and of the setup job. */}}
{{- define "signet.environment" -}}
{{- if not (include "signet.isEmbedded" .) }}
- name: SIGNET_DATABASE_URL
  valueFrom:
    secretKeyRef: {{- toYaml .Values.store.postgresql.urlSecret | nindent 6 }}
{{- end }}
{{- if eq .Values.sealKey.delivery "environment" }}
- name: SIGNET_SEAL_KEY
  valueFrom:
    secretKeyRef: {{- toYaml .Values.sealKey.secret | nindent 6 }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "signet.mounts" -}}
- { name: config, mountPath: /etc/signet/signet.toml, subPath: signet.toml, readOnly: true }
{{- if include "signet.isEmbedded" . }}
- { name: data, mountPath: /var/lib/signet }
{{- else if .Values.store.postgresql.filesSecret }}
- { name: database, mountPath: /etc/signet-database, readOnly: true }
{{- end }}
{{- if include "signet.hasSealKeyFile" . }}
- { name: seal-key, mountPath: /run/signet-seal, readOnly: true }
{{- end }}
{{- if .Values.tls.secretName }}
- { name: tls, mountPath: /etc/signet-tls, readOnly: true }
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "signet.volumes" -}}
- name: config
  configMap:
    name: {{ include "signet.fullname" . }}
{{- if include "signet.isEmbedded" . }}
- name: data
  persistentVolumeClaim:
    claimName: {{ include "signet.claim" . }}
{{- else if .Values.store.postgresql.filesSecret }}
- name: database
  secret:
    secretName: {{ .Values.store.postgresql.filesSecret }}
    defaultMode: 0440
{{- end }}
{{- if include "signet.hasSealKeyFile" . }}
# The file belongs to root, and fsGroup lets the group of the server read it: the server accepts that of root's files.
- name: seal-key
  secret:
    secretName: {{ .Values.sealKey.secret.name }}
    items: [{ key: {{ .Values.sealKey.secret.key | quote }}, path: seal.key }]
    defaultMode: 0400
{{- end }}
{{- with .Values.tls.secretName }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A probe of one of the two health paths; a server on the loopback is asked from inside the container. */}}
{{- define "signet.probe" -}}
{{- if .root.Values.tls.secretName -}}
httpGet:
  path: {{ .path }}
  port: api
  scheme: HTTPS
{{- else -}}
exec:
  command:
    - /usr/bin/signet
    - health
    - --config=/etc/signet/signet.toml
    {{- if eq .path "/v1/sys/live" }}
    - --live
    {{- end }}
{{- end }}
timeoutSeconds: 6
periodSeconds: {{ .period }}
failureThreshold: {{ .failures }}
{{- end }}
