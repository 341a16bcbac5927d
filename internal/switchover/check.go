// Package switchover checks a cluster before a switchover between OpenKruise and Outrigger. A check compares
// the effects of OpenKruise and Outrigger on stored SidecarSets and pods. The check also reports the webhooks
// that the API server calls for SidecarSets and pods.
package switchover

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

// Facts are the input of a check, except for the pods.
type Facts struct {
	Sets []v1alpha1.SidecarSet
	// Revisions are the revisions of the system namespace.
	Revisions []appsv1.ControllerRevision
	// Namespaces maps the name of each namespace to its labels.
	Namespaces map[string]map[string]string
	// Whitelist is the value of v1alpha1.MetadataWhitelistKey.
	Whitelist string
	// Deployments are the Deployments of the system namespace.
	Deployments []appsv1.Deployment
	Mutating    []admissionregistrationv1.MutatingWebhookConfiguration
	Validating  []admissionregistrationv1.ValidatingWebhookConfiguration
	// Webhook decides for which pods API servers call the webhook of Outrigger, now or after the installation.
	Webhook match.Webhook
	// Unread contains the objects that could not be read, with the errors.
	Unread []string
}

// Check checks SidecarSets and pods. Check processes pods in pages, and keeps no pod in memory.
type Check struct {
	facts  Facts
	gates  []gate
	pods   map[string]*setPods
	report Report
}

// New begins a check of facts. The caller adds the pods with Add, and then calls Report.
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

// Add checks a page of pods.
func (c *Check) Add(pods []corev1.Pod) {
	for i := range pods {
		c.addPod(&pods[i])
	}
}

// Report returns the findings. Report may be called only once.
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
		c.checkSteps(c.pods[set.Name])
		c.noteStrategy(set)
	}
	for _, object := range c.facts.Unread {
		c.find(Blocks, "unread", "", "Not checked: %s.", object)
	}
	c.report.sort()
	return &c.report
}

func (c *Check) find(effect Effect, topic, object, message string, args ...any) *Finding {
	c.report.Findings = append(c.report.Findings, Finding{Effect: effect, Topic: topic, Object: object, Message: fmt.Sprintf(message, args...)})
	return &c.report.Findings[len(c.report.Findings)-1]
}

func objectOf(set *v1alpha1.SidecarSet) string { return "SidecarSet/" + set.Name }
