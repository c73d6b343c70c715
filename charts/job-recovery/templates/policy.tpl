{{- if .Values.admissionPolicy.enabled }}
{{- $name := .Values.name -}}
{{- $account := printf "system:serviceaccount:%s:%s" .Release.Namespace .Values.account.name -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}-nodes
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [UPDATE]
        resources: [nodes]
  matchConditions:
    - name: is-recovery
      expression: request.userInfo.username == {{ $account | squote }}
  variables:
    - name: labels
      expression: object.metadata.?labels.orValue({})
    - name: oldLabels
      expression: oldObject.metadata.?labels.orValue({})
    - name: annotations
      expression: object.metadata.?annotations.orValue({})
    - name: oldAnnotations
      expression: oldObject.metadata.?annotations.orValue({})
    - name: taints
      expression: object.spec.?taints.orValue([]).filter(t, t.key != 'node.kubernetes.io/out-of-service')
    - name: oldTaints
      expression: oldObject.spec.?taints.orValue([]).filter(t, t.key != 'node.kubernetes.io/out-of-service')
  validations:
    - expression: variables.labels == variables.oldLabels
      message: recovery changes no labels of nodes
    - expression: >-
        variables.annotations.all(k, k == 'mission-control/job-recovery'
        || (k in variables.oldAnnotations && variables.oldAnnotations[k] == variables.annotations[k]))
        && variables.oldAnnotations.all(k, k == 'mission-control/job-recovery' || k in variables.annotations)
      message: recovery changes no annotation of nodes but its own
    - expression: >-
        variables.taints.all(t, variables.oldTaints.exists(o, o.key == t.key && o.effect == t.effect
        && o.?value == t.?value))
        && variables.oldTaints.all(o, variables.taints.exists(t, o.key == t.key && o.effect == t.effect))
      message: recovery changes no taint of nodes but out-of-service
    - expression: >-
        object.spec.?providerID == oldObject.spec.?providerID && object.spec.?podCIDRs == oldObject.spec.?podCIDRs
      message: recovery changes no address and no identity of nodes
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}-nodes
spec:
  policyName: {{ $name }}-nodes
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}-jobs
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [batch]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [jobs]
  matchConditions:
    - name: is-recovery
      expression: request.userInfo.username == {{ $account | squote }}
  validations:
    - expression: "'mission-control/job-recovery' in object.metadata.?annotations.orValue({})"
      message: recovery makes and changes no Job without its annotation
    - expression: request.operation == 'CREATE' || object.spec == oldObject.spec
      message: recovery does not change what a Job does
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}-jobs
spec:
  policyName: {{ $name }}-jobs
  validationActions: [Deny]
{{- end }}
