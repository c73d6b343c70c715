{{- if .Values.dashboards.enabled }}
{{- range $path, $content := .Files.Glob "files/dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  labels:
{{ toYaml $.Values.dashboards.labels | indent 4 }}
  annotations:
{{ toYaml $.Values.dashboards.annotations | indent 4 }}
data:
  {{ base $path }}: |-
{{ toString $content | indent 4 }}
{{- end }}
{{- end }}
