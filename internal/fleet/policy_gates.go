package fleet

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
)

// The gates of a RolloutPolicy have the same limits, which the API server validates.
const (
	maxGates       = 20
	maxSamples     = 1000
	maxGateTimeout = time.Minute
)

// validateGates checks the gates of a policy, and that the stages of the policy name only these gates (SPEC
// 12.1.2, 12.2.11).
func validateGates(spec *outriggerv1.FleetPolicySpec, wrong func(field, cause string)) {
	if len(spec.Gates) > maxGates {
		wrong("spec.gates", fmt.Sprintf("a policy must have at most %d gates", maxGates))
	}
	var names []string
	for i := range spec.Gates {
		for _, cause := range gateErrors(&spec.Gates[i]) {
			wrong(fmt.Sprintf("spec.gates[%d].%s", i, cause[0]), cause[1])
		}
		if slices.Contains(names, spec.Gates[i].Name) {
			wrong(fmt.Sprintf("spec.gates[%d].name", i), fmt.Sprintf("the names of gates must differ, and %q occurs twice", spec.Gates[i].Name))
		}
		names = append(names, spec.Gates[i].Name)
	}
	for i := range spec.Stages {
		named := spec.Stages[i].Gates
		for j, name := range named {
			field := fmt.Sprintf("spec.stages[%d].gates[%d]", i, j)
			if !slices.Contains(names, name) {
				wrong(field, fmt.Sprintf("gate %q is not in spec.gates: add the gate, or remove its name from the stage", name))
			}
			if slices.Contains(named[:j], name) {
				wrong(field, fmt.Sprintf("gate %q occurs twice in the stage", name))
			}
		}
	}
}

// gateErrors returns the invalid fields of a gate with their causes.
func gateErrors(g *outriggerv1.RolloutGate) (wrong [][2]string) {
	add := func(is bool, field, cause string) {
		if is {
			wrong = append(wrong, [2]string{field, cause})
		}
	}
	if reasons := validation.IsDNS1123Label(g.Name); len(reasons) > 0 {
		add(true, "name", reasons[0])
	}
	kinds := 0
	if p := g.Prometheus; p != nil {
		kinds++
		addressError(p.Address, "prometheus.address", add)
		add(strings.Contains(p.Address, "?"), "prometheus.address", "the address must not have a query; write the query into the field query")
		add(p.Query == "", "prometheus.query", "write a query whose answer is one number")
		add(p.Success == "", "prometheus.success", `write an expression such as "value < 0.01"`)
		add(p.Samples < 0 || p.Samples > maxSamples, "prometheus.samples", fmt.Sprintf("use a number from 1 to %d", maxSamples))
		add(p.FailureLimit < 0 || p.FailureLimit >= max(p.Samples, 1), "prometheus.failureLimit", "use a number from 0 that is less than samples")
		add(tooShort(p.Interval), "prometheus.interval", "use a duration of at least 1s")
		add(p.Credentials != nil, "prometheus.credentials", noCredentials)
	}
	if w := g.Webhook; w != nil {
		kinds++
		addressError(w.URL, "webhook.url", add)
		add(w.Timeout != nil && (w.Timeout.Duration <= 0 || w.Timeout.Duration > maxGateTimeout), "webhook.timeout", fmt.Sprintf("use a positive duration of at most %s", maxGateTimeout))
		add(tooShort(w.Interval), "webhook.interval", "use a duration of at least 1s")
		add(w.Credentials != nil, "webhook.credentials", noCredentials)
	}
	if w := g.Workflow; w != nil {
		kinds++
		add(w.Type == "", "workflow.type", "write the type of your workflow")
		add(w.TaskQueue == "", "workflow.taskQueue", "write the task queue of your worker")
		add(tooShort(w.Interval), "workflow.interval", "use a duration of at least 1s")
	}
	add(kinds != 1, "name", "the gate must have exactly one of prometheus, webhook and workflow")
	if len(wrong) > 0 {
		return wrong
	}
	for _, problem := range gate.Problems(g) {
		add(true, problem.Field, fmt.Sprintf("%q: %s; %s", problem.Value, problem.Err, problem.Remedy))
	}
	return wrong
}

// noCredentials is the error message for a gate of a fleet that has credentials.
const noCredentials = "a gate of a fleet must not have credentials, because each client with write access to the Temporal namespace of the fleet could choose the address that receives the credentials"

func tooShort(interval *metav1.Duration) bool {
	return interval != nil && interval.Duration < time.Second
}

func addressError(address, field string, add func(is bool, field, cause string)) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || strings.ContainsAny(address, " \t\r\n") {
		add(true, field, fmt.Sprintf("%q is not an absolute URL such as https://checks.example.com/rollouts", address))
		return
	}
	add(parsed.User != nil, field, "the address must not have a user or a password")
	add(strings.Contains(address, "#"), field, "the address must not have a fragment: remove the part that begins with #")
}
