package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutGate decides at the end of a step whether the rollout continues. The gate starts after all pods of
// the step are updated and ready, and after the bake time of the step. If the gate succeeds, the rollout
// continues. If the gate fails, the rollout is paused or rolled back. If the gate is inconclusive, the
// rollout is paused.
//
// +kubebuilder:validation:XValidation:rule="[has(self.prometheus), has(self.webhook), has(self.workflow)].exists_one(x, x)",message="a gate must have exactly one of prometheus, webhook and workflow"
type RolloutGate struct {
	// Name is the name of the gate in steps and messages.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name consists of lower-case letters, digits and hyphens, and begins and ends with a letter or a digit, such as canary"
	Name string `json:"name"`
	// Prometheus measures the value of a query.
	Prometheus *PrometheusGate `json:"prometheus,omitempty"`
	// Webhook sends requests to a service of the user.
	Webhook *WebhookGate `json:"webhook,omitempty"`
	// Workflow starts a workflow of the user, and waits for the result of the workflow.
	Workflow *WorkflowGate `json:"workflow,omitempty"`
}

// PrometheusGate measures the value of a query of Prometheus.
//
// +kubebuilder:validation:XValidation:rule="!has(self.failureLimit) || self.failureLimit < (has(self.samples) ? self.samples : 1)",message="failureLimit is less than samples"
type PrometheusGate struct {
	// Address is the address of Prometheus, such as http://prometheus.monitoring:9090.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#]')",message="address begins with http:// or https://, such as http://prometheus.monitoring:9090"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^:]*://[^/?#]*@')",message="address must not have a user or a password: put them into a Secret, and name the Secret in credentials"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[?#]')",message="address must not have a query or a fragment: remove the part that begins with ? or #, and write the query into the field query"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]') && isURL(self)",message="address is an absolute URL without spaces, such as http://prometheus.monitoring:9090"
	Address string `json:"address"`
	// Query is a PromQL query that returns a scalar, or a vector with one element. The query is a template for
	// the Go package text/template, with the fields SidecarSet, Revision, Generation and Step.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Query string `json:"query"`
	// Interval is the time between two samples. The default is 1m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s')",message="interval is a duration of at least 1s"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Samples is the number of samples that the gate takes. The default is 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Samples int32 `json:"samples,omitempty"`
	// Success is a CEL expression. A sample for which the expression is true is a success. The variable value
	// is the value of the sample, the variable previous is the value of the previous sample, and the variable
	// pods is the number of updated pods.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Success string `json:"success"`
	// Failure is a CEL expression with the same variables as success. A sample for which the expression is true
	// is a failure. Without failure, each sample that has a number and is not a success is a failure.
	// +kubebuilder:validation:MaxLength=512
	Failure string `json:"failure,omitempty"`
	// FailureLimit is the number of failed samples above which the gate fails. The default is 0.
	// +kubebuilder:validation:Minimum=0
	FailureLimit int32 `json:"failureLimit,omitempty"`
	// Credentials names the Secret with the credentials of Prometheus.
	Credentials *GateCredentials `json:"credentials,omitempty"`
}

// WebhookGate sends requests to a service of the user. The request is a POST whose JSON has the fields
// sidecarSet, generation, revision, step and pods. The answer is JSON with the fields phase and message. The
// phase is Success, Failure, Inconclusive or Running. After the answer Running, the gate sends another
// request.
type WebhookGate struct {
	// URL is the address of the service.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#]')",message="url begins with http:// or https://, such as https://checks.example.com/rollouts"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^:]*://[^/?#]*@')",message="url must not have a user or a password: put them into a Secret, and name the Secret in credentials"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#')",message="url must not have a fragment: remove the part that begins with #"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:]]') && isURL(self)",message="url is an absolute URL without spaces, such as https://checks.example.com/rollouts"
	URL string `json:"url"`
	// Timeout is the time within which the service must answer. The default is 10s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s') && duration(self) <= duration('60s')",message="timeout is a duration of at most 60s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Interval is the time between the answer Running and the next request. The default is 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s')",message="interval is a duration of at least 1s"
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Credentials names the Secret with the credentials of the service.
	Credentials *GateCredentials `json:"credentials,omitempty"`
}

// WorkflowGate starts a workflow of the user in the Temporal namespace of Outrigger, and waits for the result
// of the workflow, for days if necessary. The input has the fields sidecarSet, generation, revision, step and
// pods. The result has the fields phase and message. The phase is Success, Failure or Inconclusive. If the
// workflow ends without a result, the gate is inconclusive.
type WorkflowGate struct {
	// Type is the type of the workflow.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Type string `json:"type"`
	// TaskQueue is the task queue of the worker that runs the workflow.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	TaskQueue string `json:"taskQueue"`
	// Interval is the time between two reads of the result. The default is 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s')",message="interval is a duration of at least 1s"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// GateCredentials names a Secret in the system namespace. The Secret has the key token, or the keys username
// and password. By default, the worker may read only the Secret outrigger-gates. A Secret with another name
// needs an additional Role for the worker.
type GateCredentials struct {
	// Name is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
