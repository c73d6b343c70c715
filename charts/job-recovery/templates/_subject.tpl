{{/* Names and rights are those of plugins/module_utils/kubernetes/rbac.py; tests hold the two together. */}}
{{- define "job-recovery.subject" -}}
- kind: ServiceAccount
  name: {{ .Values.account.name }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
