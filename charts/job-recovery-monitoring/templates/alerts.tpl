{{- if .Values.alerts.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: job-recovery
  namespace: {{ .Release.Namespace }}
  labels:
{{ toYaml .Values.alerts.labels | indent 4 }}
spec:
{{ .Files.Get "files/alerts.yaml" | trimPrefix "---\n" | indent 2 }}
{{- end }}
