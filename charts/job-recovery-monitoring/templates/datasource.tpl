{{- if .Values.datasource.lokiUrl }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: job-recovery-datasource
  namespace: {{ .Release.Namespace }}
  labels:
{{ toYaml .Values.datasource.labels | indent 4 }}
data:
  job-recovery-datasource.yaml: |-
    apiVersion: 1
    datasources:
      - name: Loki
        type: loki
        access: proxy
        url: {{ .Values.datasource.lokiUrl | quote }}
{{- end }}
