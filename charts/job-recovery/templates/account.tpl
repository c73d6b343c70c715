apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Values.account.name }}
  namespace: {{ .Release.Namespace }}
automountServiceAccountToken: false
{{- if .Values.account.token }}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: {{ .Values.account.name }}-token
  namespace: {{ .Release.Namespace }}
  annotations:
    kubernetes.io/service-account.name: {{ .Values.account.name }}
{{- end }}
