{{/*
The manifests of this chart are in config/, which kustomize also applies. The link
charts/outrigger/config leads to config/. A packaged chart contains a copy instead.
"outrigger.file" reads a file of config/ and replaces the namespace kruise-system by the namespace
of the release. A template parses the text with fromYaml, sets the values of values.yaml, and
prints the result with toYaml. Defaults that are not in values.yaml therefore come from config/.
The values override these fields:

  value of values.yaml            overrides, in config/
  <role>.replicas, image, args    deploy/<role>.yaml, by "outrigger.deployment"
  featureGates                    deploy/webhook.yaml, by "outrigger.deployment"
  <role>.nodeSelector, affinity, tolerations, topologySpreadConstraints, priorityClassName
                                  deploy/<role>.yaml, spec.template.spec
  <role>.podSpec                  deploy/<role>.yaml, spec.template.spec, merged
  temporal.*                      deploy/kustomization.yaml, ConfigMap outrigger-temporal
  webhook.pods                    webhook/manifests.yaml, webhook pods.outrigger.io, merged
  excludedNamespaces              webhook/manifests.yaml, its namespaceSelector
  aggregateClusterRoles           rbac/*.yaml, labels of the ClusterRoles
  networkPolicy.webhookFrom       networkpolicy/webhook.yaml
  monitoring.labels               monitoring/*.yaml

Only temporal.yaml (the embedded server), autoscaling.yaml, certificate.yaml, setup.yaml, test.yaml,
ui.yaml and uninstall.yaml contain manifests themselves.
*/}}

{{/* Returns a file of config/ with the namespace of the release. Arguments: root, path below config. */}}
{{- define "outrigger.file" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (printf "config/%s" (index . 1)) | required (printf "config/%s is missing: charts/outrigger/config must be a link to config or a copy of it" (index . 1)) -}}
{{- $text | replace "kruise-system" $root.Release.Namespace -}}
{{- end -}}

{{- define "outrigger.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Returns the values of the connection to Temporal. The embedded server and its clients use one Secret. */}}
{{- define "outrigger.temporal.connection" -}}
{{- $connection := deepCopy .Values.temporal -}}
{{- if $connection.embedded.enabled -}}
{{- $secret := $connection.tls.secretName | default "outrigger-temporal-tls" -}}
{{- $_ := set $connection "tls" (merge (dict "enabled" true "secretName" $secret "clientCertificate" true "ca" true) $connection.tls) -}}
{{- end -}}
{{- toYaml $connection -}}
{{- end -}}

{{/* Returns the variables of the operator and the worker for the connection to Temporal. */}}
{{- define "outrigger.temporal.env" -}}
{{- $t := include "outrigger.temporal.connection" . | fromYaml -}}
{{- $env := dict "TEMPORAL_ADDRESS" $t.address "TEMPORAL_NAMESPACE" $t.namespace "TEMPORAL_UI_URL" $t.uiURL -}}
{{- if $t.embedded.enabled -}}
{{- $_ := set $env "TEMPORAL_ADDRESS" (printf "outrigger-temporal.%s:7233" .Release.Namespace) -}}
{{- $_ := set $env "TEMPORAL_UI_URL" ($t.uiURL | default "http://localhost:8233") -}}
{{- end -}}
{{- if $t.tls.enabled -}}{{- $_ := set $env "TEMPORAL_TLS" "true" -}}{{- end -}}
{{- with $t.tls.serverName -}}{{- $_ := set $env "TEMPORAL_TLS_SERVER_NAME" . -}}{{- end -}}
{{- if $t.tls.secretName -}}
{{- if $t.tls.clientCertificate -}}
{{- $_ := set $env "TEMPORAL_TLS_CLIENT_CERT_PATH" "/etc/temporal/tls/tls.crt" -}}
{{- $_ := set $env "TEMPORAL_TLS_CLIENT_KEY_PATH" "/etc/temporal/tls/tls.key" -}}
{{- end -}}
{{- if $t.tls.ca -}}{{- $_ := set $env "TEMPORAL_TLS_SERVER_CA_CERT_PATH" "/etc/temporal/tls/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if $t.apiKey.secretName -}}{{- $_ := set $env "TEMPORAL_API_KEY_FILE" (printf "/etc/temporal/api-key/%s" $t.apiKey.key) -}}{{- end -}}
{{- if $t.payloadKeys.secretName -}}
{{- $_ := set $env "TEMPORAL_PAYLOAD_KEY_DIR" "/etc/temporal/payload-keys" -}}
{{- if $t.payloadKeys.encrypt -}}{{- $_ := set $env "TEMPORAL_PAYLOAD_KEY_ID_FILE" "/etc/temporal/payload-keys/.current" -}}{{- end -}}
{{- end -}}
{{- toYaml (merge (deepCopy $t.env) $env) -}}
{{- end -}}

{{/*
Returns the Secrets of a connection to Temporal by their mount directory below /etc/temporal.
Arguments: the values of the connection, and the prefix of the directories.
*/}}
{{- define "outrigger.temporal.secrets" -}}
{{- $prefix := index . 1 -}}
{{- with index . 0 -}}
{{- range $directory, $secret := dict "api-key" .apiKey.secretName "tls" .tls.secretName "payload-keys" .payloadKeys.secretName -}}
{{- if $secret }}
{{ $prefix }}{{ $directory }}: {{ $secret | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Returns the Secrets that a role of a member of a fleet mounts for the fleet, like "outrigger.temporal.secrets". Arguments: root, role. */}}
{{- define "outrigger.fleet.secrets" -}}
{{- $fleet := (index . 0).Values.fleet -}}
{{- if and $fleet.enabled (has (index . 1) (list "worker" "ui")) -}}
{{- include "outrigger.temporal.secrets" (list $fleet.temporal "fleet-") -}}
{{- end -}}
{{- end -}}

{{/* Returns the mounts of Secrets, by their directories below /etc/temporal. */}}
{{- define "outrigger.temporal.mounts" -}}
{{- range $directory, $secret := . }}
- {name: {{ printf "temporal-%s" $directory }}, mountPath: {{ printf "/etc/temporal/%s" $directory }}, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Returns the volumes of Secrets, by their directories below /etc/temporal. */}}
{{- define "outrigger.temporal.volumes" -}}
{{- range $directory, $secret := . }}
- {name: {{ printf "temporal-%s" $directory }}, secret: {secretName: {{ $secret | quote }}}}
{{- end -}}
{{- end -}}

{{/* Returns the flags of the worker and the pages for the connection to the fleet. */}}
{{- define "outrigger.fleet.connection" -}}
{{- $args := list -}}
{{- with .Values.fleet.temporal -}}
{{- with .address -}}{{- $args = append $args (printf "--fleet-temporal-address=%s" .) -}}{{- end -}}
{{- with .namespace -}}{{- $args = append $args (printf "--fleet-temporal-namespace=%s" .) -}}{{- end -}}
{{- if .apiKey.secretName -}}{{- $args = append $args (printf "--fleet-temporal-api-key-file=/etc/temporal/fleet-api-key/%s" .apiKey.key) -}}{{- end -}}
{{- if .tls.enabled -}}
{{- $args = append $args "--fleet-temporal-tls" -}}
{{- else if and $.Values.temporal.embedded.enabled .address (not .apiKey.secretName) (not .tls.secretName) (not .tls.serverName) -}}
{{- /* The certificate of the embedded Temporal must not be used for another server. */ -}}
{{- $args = append $args "--fleet-temporal-tls=false" -}}
{{- end -}}
{{- with .tls.serverName -}}{{- $args = append $args (printf "--fleet-temporal-tls-server-name=%s" .) -}}{{- end -}}
{{- if .tls.secretName -}}
{{- if .tls.clientCertificate -}}
{{- $args = concat $args (list "--fleet-temporal-tls-cert-path=/etc/temporal/fleet-tls/tls.crt" "--fleet-temporal-tls-key-path=/etc/temporal/fleet-tls/tls.key") -}}
{{- end -}}
{{- if .tls.ca -}}{{- $args = append $args "--fleet-temporal-tls-ca-path=/etc/temporal/fleet-tls/ca.crt" -}}{{- end -}}
{{- end -}}
{{- if .payloadKeys.secretName -}}
{{- $args = append $args "--fleet-temporal-payload-key-dir=/etc/temporal/fleet-payload-keys" -}}
{{- if .payloadKeys.encrypt -}}{{- $args = append $args "--fleet-temporal-payload-key-id-file=/etc/temporal/fleet-payload-keys/.current" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Returns the flags of a role in a member of a fleet. Arguments: root, role. */}}
{{- define "outrigger.fleet.args" -}}
{{- $fleet := (index . 0).Values.fleet -}}
{{- $args := list -}}
{{- if $fleet.enabled -}}
{{- $args = append $args "--fleet" -}}
{{- if has (index . 1) (list "worker" "ui") -}}
{{- $args = concat $args (include "outrigger.fleet.connection" (index . 0) | fromYamlArray) -}}
{{- end -}}
{{- if eq (index . 1) "worker" -}}
{{- with $fleet.cluster.name -}}{{- $args = append $args (printf "--fleet-cluster-name=%s" .) -}}{{- end -}}
{{- range $key, $value := $fleet.cluster.labels -}}{{- $args = append $args (printf "--fleet-cluster-labels=%s=%s" $key $value) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}

{{/*
Returns the ports of a container with the numbers in its flags, because the Service, the probes, the
network policies and the PodMonitor select a port by its name. Arguments: role, container.
*/}}
{{- define "outrigger.ports" -}}
{{- $role := index . 0 -}}
{{- $container := index . 1 -}}
{{- $ports := list -}}
{{- range $port := $container.ports -}}
{{- $flag := get (dict "webhook" "--port=" "metrics" "--metrics-bind-address=" "health" "--health-probe-bind-address=") $port.name -}}
{{- $off := false -}}
{{- range $arg := $container.args -}}{{- if and $flag (hasPrefix $flag $arg) -}}
{{- $address := trimPrefix $flag $arg -}}
{{- $off = eq $address "0" -}}
{{- if and (eq $port.name "health") (has $address (list "" "0")) -}}
{{- fail (printf "%s.args: %s turns off the probes of the pods: set an address, such as --health-probe-bind-address=:8081" $role $arg) -}}
{{- end -}}
{{- with $address -}}{{- $_ := set $port "containerPort" (splitList ":" . | last | int) -}}{{- end -}}
{{- end -}}{{- end -}}
{{- if not $off -}}{{- $ports = append $ports $port -}}{{- end -}}
{{- end -}}
{{- toYaml $ports -}}
{{- end -}}

{{/* Returns config/deploy/<role>.yaml with the values of the role. Arguments: root, role, Deployment. */}}
{{- define "outrigger.deployment" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- $deployment := index . 2 -}}
{{- $template := $deployment.spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- /* Without replicas, such as with an autoscaler of the user, the Deployment keeps its number of pods. */ -}}
{{- if or (dig "autoscaling" "enabled" false $values) (kindIs "invalid" $values.replicas) -}}
{{- $_ := unset $deployment.spec "replicas" -}}
{{- else -}}
{{- $_ := set $deployment.spec "replicas" (int $values.replicas) -}}
{{- end -}}
{{- $annotations := deepCopy $values.podAnnotations -}}
{{- $mounts := list -}}
{{- $volumes := list -}}
{{- if $container.envFrom -}}
{{- $annotations = set $annotations "checksum/temporal" (include "outrigger.temporal.env" $root | sha256sum) -}}
{{- $secrets := merge (include "outrigger.temporal.secrets" (list (include "outrigger.temporal.connection" $root | fromYaml) "") | fromYaml) (include "outrigger.fleet.secrets" (list $root (index . 1)) | fromYaml) -}}
{{- $mounts = include "outrigger.temporal.mounts" $secrets | fromYamlArray -}}
{{- $volumes = include "outrigger.temporal.volumes" $secrets | fromYamlArray -}}
{{- end -}}
{{- with $annotations -}}{{- $_ := set $template.metadata "annotations" . -}}{{- end -}}
{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels $values.podLabels) -}}
{{- $_ := set $container "image" (include "outrigger.image" $root) -}}
{{- $_ := set $container "imagePullPolicy" $root.Values.image.pullPolicy -}}
{{- if dig "certManager" "enabled" false $values -}}
{{- $_ := set $container "args" (append $container.args "--external-certificate") -}}
{{- end -}}
{{- if and (eq (index . 1) "webhook") $root.Values.featureGates -}}
{{- $_ := set $container "args" (append $container.args (printf "--feature-gates=%s" $root.Values.featureGates)) -}}
{{- end -}}
{{- if dig "matchConditions" false $values -}}
{{- $_ := set $container "args" (append $container.args "--match-conditions") -}}
{{- end -}}
{{- $_ := set $container "args" (concat $container.args (include "outrigger.fleet.args" (list $root (index . 1)) | fromYamlArray) $values.args) -}}
{{- $_ := set $container "ports" (include "outrigger.ports" (list (index . 1) $container) | fromYamlArray) -}}
{{- range $container.env -}}{{- if eq .name "GOMEMLIMIT" -}}{{- $_ := set . "value" $values.goMemLimit -}}{{- end -}}{{- end -}}
{{- $_ := set $container "env" (concat $container.env $values.env) -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $mounts -}}{{- $_ := set $container "volumeMounts" . -}}{{- end -}}
{{- with $volumes -}}{{- $_ := set $pod "volumes" . -}}{{- end -}}
{{- with $root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- $_ := set $pod "priorityClassName" $values.priorityClassName -}}
{{- range $field := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" -}}
{{- with index $values $field -}}{{- $_ := set $pod $field . -}}{{- end -}}
{{- end -}}
{{- $_ := mustMergeOverwrite $pod (deepCopy $values.podSpec) -}}
{{- /* With hostNetwork, a new pod needs the ports of an old pod. With as many nodes as replicas, a surge pod would never be scheduled. */ -}}
{{- if $pod.hostNetwork -}}
{{- $_ := set $deployment.spec "strategy" (dict "rollingUpdate" (dict "maxSurge" 0 "maxUnavailable" 1)) -}}
{{- $_ := set $pod "dnsPolicy" (default "ClusterFirstWithHostNet" $pod.dnsPolicy) -}}
{{- end -}}
{{- toYaml $deployment -}}
{{- end -}}

{{/*
Returns the spec of the pod of a Job, which is admitted and scheduled like a pod of the operator.
Arguments: root, name, args, and whether the pod connects to Temporal. A Job without that
connection starts even if the ConfigMap or a Secret of Temporal is missing.
*/}}
{{- define "outrigger.job.pod" -}}
{{- $root := index . 0 -}}
{{- $operator := include "outrigger.file" (list $root "deploy/operator.yaml") | splitList "\n---\n" | first | fromYaml -}}
{{- $spec := (include "outrigger.deployment" (list $root "operator" $operator) | fromYaml).spec.template.spec -}}
{{- $container := pick (first $spec.containers) "image" "imagePullPolicy" "securityContext" -}}
{{- $pod := pick $spec "priorityClassName" "nodeSelector" "affinity" "tolerations" "hostNetwork" "hostAliases" "dnsPolicy" "dnsConfig" "schedulerName" "runtimeClassName" "imagePullSecrets" "securityContext" -}}
{{- if index . 3 -}}
{{- $container = merge $container (pick (first $spec.containers) "envFrom" "volumeMounts") (dict "env" $root.Values.operator.env) -}}
{{- $pod = merge $pod (pick $spec "volumes") -}}
{{- end -}}
{{- $_ := set $container "name" (index . 1) -}}
{{- $_ := set $container "args" (index . 2) -}}
{{- $_ := set $container "resources" (dict "requests" (dict "cpu" "50m" "memory" "64Mi") "limits" (dict "memory" "256Mi")) -}}
{{- $_ := set $container "terminationMessagePolicy" "FallbackToLogsOnError" -}}
{{- toYaml (merge (dict "restartPolicy" "Never" "containers" (list $container)) $pod) -}}
{{- end -}}

{{/*
Returns the labels and annotations of the pod of a Job or of the pages, with those of the operator's
pods, because an admission policy may require them. Arguments: root, component, annotations.
*/}}
{{- define "outrigger.job.metadata" -}}
{{- $values := (index . 0).Values.operator -}}
labels: {{- toYaml (merge (dict "app.kubernetes.io/name" "outrigger" "app.kubernetes.io/component" (index . 1)) $values.podLabels) | nindent 2 }}
{{- with merge (index . 2) $values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
