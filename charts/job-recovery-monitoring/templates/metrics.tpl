{{- if .Values.metrics.addresses }}
{{/* The controller stands outside of the cluster: a Service without a selector, and its addresses by hand. */}}
apiVersion: v1
kind: Service
metadata:
  name: job-recovery
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: job-recovery
spec:
  clusterIP: None
  ports:
    - name: metrics
      port: {{ .Values.metrics.port }}
---
apiVersion: v1
kind: Endpoints
metadata:
  name: job-recovery
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/name: job-recovery
subsets:
  - addresses:
{{- range .Values.metrics.addresses }}
      - ip: {{ . | quote }}
{{- end }}
    ports:
      - name: metrics
        port: {{ .Values.metrics.port }}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: job-recovery
  namespace: {{ .Release.Namespace }}
  labels:
{{ toYaml .Values.metrics.labels | indent 4 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: job-recovery
  namespaceSelector:
    matchNames:
      - {{ .Release.Namespace }}
  endpoints:
    - port: metrics
      interval: {{ .Values.metrics.interval }}
      # `cluster` is the recovery's own and not that of the Prometheus that reads it
      honorLabels: true
{{- end }}
