package switchover

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Facts are what a check goes by, beside pods.
type Facts struct {
	Sets []v1alpha1.SidecarSet
	// Revisions are those of the system namespace.
	Revisions []appsv1.ControllerRevision
	// Namespaces holds the labels of each.
	Namespaces map[string]map[string]string
	// Whitelist is the value of v1alpha1.MetadataWhitelistKey.
	Whitelist string
	// Deployments are those of the system namespace.
	Deployments []appsv1.Deployment
	Mutating    []admissionregistrationv1.MutatingWebhookConfiguration
	Validating  []admissionregistrationv1.ValidatingWebhookConfiguration
	// Unread is what could not be read, and why.
	Unread []string
}

// Check looks at sets and pods. Pods come in parts, and none is kept.
type Check struct {
	facts  Facts
	gates  []gate
	pods   map[string]*setPods
	report Report
}

// New begins a check with all but the pods.
func New(facts Facts) *Check {
	c := &Check{facts: facts, pods: map[string]*setPods{}}
	slices.SortFunc(c.facts.Sets, func(a, b v1alpha1.SidecarSet) int { return strings.Compare(a.Name, b.Name) })
	c.gates = featureGates(managers(facts.Deployments))
	c.report.Sets = len(facts.Sets)
	for i := range c.facts.Sets {
		set := &c.facts.Sets[i]
		c.pods[set.Name] = newSetPods(set)
	}
	return c
}

// Add looks at some of the pods.
func (c *Check) Add(pods []corev1.Pod) {
	for i := range pods {
		c.addPod(&pods[i])
	}
}

// Report is what was found in all that was added. It is called once.
func (c *Check) Report() *Report {
	c.checkServing()
	c.noteGates()
	c.checkControllers()
	whitelist := c.whitelist()
	for i := range c.facts.Sets {
		set := &c.facts.Sets[i]
		c.checkHashes(set)
		c.checkPin(set)
		c.checkRules(set, whitelist)
		c.checkPods(c.pods[set.Name])
		c.noteStrategy(set)
	}
	for _, what := range c.facts.Unread {
		c.find(Note, "unread", "", "Not looked at: %s.", what)
	}
	c.report.sort()
	return &c.report
}

func (c *Check) find(effect Effect, topic, object, message string, args ...any) *Finding {
	c.report.Findings = append(c.report.Findings, Finding{Effect: effect, Topic: topic, Object: object, Message: fmt.Sprintf(message, args...)})
	return &c.report.Findings[len(c.report.Findings)-1]
}

func objectOf(set *v1alpha1.SidecarSet) string { return "SidecarSet/" + set.Name }
