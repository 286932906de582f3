{{- define "name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: dataflow-assets
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "sparkRemote" -}}
{{ .Values.spark.remote | default (printf "sc://%s-spark.%s.svc:15002" (include "name" .) .Release.Namespace) }}
{{- end }}

{{- define "flowsFolder" -}}
{{- if eq .Values.flows.from "git" -}}
/flows/current{{ with .Values.flows.git.folder }}/{{ . }}{{ end }}
{{- else -}}
/flows
{{- end -}}
{{- end }}

{{/* The same for the code location, its runs and the watcher. */}}
{{- define "env" -}}
- { name: DATAFLOW_FLOWS, value: {{ include "flowsFolder" . | quote }} }
- { name: DATAFLOW_SPARK, value: {{ include "sparkRemote" . | quote }} }
- { name: DATAFLOW_START, value: {{ ternary "1" "0" .Values.flows.startSwitchedOn | quote }} }
- { name: DATAFLOW_WEBSERVER, value: {{ .Values.dagster.webserver | quote }} }
- { name: HOME, value: /tmp }
{{- with .Values.secrets.namespaces }}
- { name: DATAFLOW_SECRET_NAMESPACES, value: {{ join "," . | quote }} }
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Dagster's instance, which runs get from its launcher. */}}
{{- define "instanceEnv" -}}
- { name: DAGSTER_HOME, value: {{ .Values.dagster.home | quote }} }
- name: DAGSTER_PG_PASSWORD
  valueFrom:
    secretKeyRef: { name: {{ .Values.dagster.postgresqlSecret | quote }}, key: postgresql-password }
{{- end }}

{{- define "instanceVolume" -}}
- name: dagster-instance
  configMap: { name: {{ .Values.dagster.instanceConfigMap | quote }} }
{{- end }}

{{- define "instanceMount" -}}
- { name: dagster-instance, mountPath: "{{ .Values.dagster.home }}/dagster.yaml", subPath: dagster.yaml }
{{- end }}

{{- define "volumes" -}}
- { name: tmp, emptyDir: {} }
- { name: dagster-home, emptyDir: {} }
- name: flows
{{- if eq .Values.flows.from "configMap" }}
  configMap: { name: {{ required "flows.configMap is needed with flows.from: configMap" .Values.flows.configMap | quote }} }
{{- else }}
  emptyDir: {}
{{- end }}
{{- end }}

{{- define "mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: dagster-home, mountPath: {{ .Values.dagster.home | quote }} }
- { name: flows, mountPath: /flows }
{{- end }}

{{/* What keeps /flows up to date beside a container, from before that one starts until it ends. */}}
{{- define "keepers" -}}
{{- if eq .Values.flows.from "customResources" }}
- name: flows
  image: {{ include "image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [dataflow, k8s, watch, /flows, --files-only{{ range .Values.flows.namespaces }}, --namespace, {{ . | quote }}{{ end }}]
  restartPolicy: Always
  startupProbe:
    exec: { command: [test, -e, /flows/.complete] }
    periodSeconds: 1
    failureThreshold: 300
  resources: {{ toYaml .Values.watch.resources | nindent 4 }}
  securityContext: {{ include "containerSecurity" . | nindent 4 }}
  volumeMounts:
    - { name: tmp, mountPath: /tmp }
    - { name: flows, mountPath: /flows }
{{- else if eq .Values.flows.from "git" }}
- name: flows
  image: {{ .Values.flows.git.image | quote }}
  args:
    - --repo={{ required "flows.git.repository is needed with flows.from: git" .Values.flows.git.repository }}
    - --ref={{ .Values.flows.git.ref }}
    - --root=/flows
    - --link=current
    - --depth=1
    - --http-bind=:1234
    - --period={{ .Values.flows.git.seconds }}s
  env:
    - { name: HOME, value: /tmp }
    {{- with .Values.flows.git.secretName }}
    - name: GITSYNC_USERNAME
      valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: username } }
    - name: GITSYNC_PASSWORD
      valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: password } }
    {{- end }}
  restartPolicy: Always
  startupProbe:
    httpGet: { path: /, port: 1234 } # answers 200 once it has fetched the repository
    periodSeconds: 1
    failureThreshold: 300
  resources: {{ toYaml .Values.watch.resources | nindent 4 }}
  securityContext: {{ include "containerSecurity" . | nindent 4 }}
  volumeMounts:
    - { name: tmp, mountPath: /tmp }
    - { name: flows, mountPath: /flows }
{{- else if ne .Values.flows.from "configMap" }}
{{- fail "flows.from must be customResources, configMap or git" }}
{{- end }}
{{- end }}

{{/* What Dagster's K8sRunLauncher gives the Jobs of runs: the same as the code location has. */}}
{{- define "containerContext" -}}
k8s:
  namespace: {{ .Release.Namespace | quote }}
  service_account_name: {{ include "name" . }}
  image_pull_policy: {{ .Values.image.pullPolicy }}
  {{- with .Values.image.pullSecrets }}
  image_pull_secrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  env: {{ include "env" . | nindent 4 }}
  volumes: {{ include "volumes" . | nindent 4 }}
  volume_mounts: {{ include "mounts" . | nindent 4 }}
  resources: {{ toYaml .Values.runs.resources | nindent 4 }}
  labels: {{ include "labels" . | nindent 4 }}
  security_context: {{ include "containerSecurity" . | nindent 4 }}
  run_k8s_config:
    pod_spec_config:
      security_context: {{ include "podSecurity" . | nindent 8 }}
      termination_grace_period_seconds: 300 # a micro-batch that runs is committed first
      {{- with include "keepers" . | trim }}
      init_containers: {{ . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      node_selector: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{ toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity: {{ toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{- define "placement" -}}
serviceAccountName: {{ include "name" . }}
securityContext: {{ include "podSecurity" . | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
