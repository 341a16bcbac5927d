package switchover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Who a webhook belongs to.
const (
	openKruise = "OpenKruise"
	outrigger  = "Outrigger"
)

// What webhooks are asked about.
const (
	aboutPods = "pods"
	aboutSets = "sidecarsets"
)

// Kinds of configurations.
const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
)

// hook is a webhook of a configuration of either kind.
type hook struct {
	kind, configuration, name string
	index                     int
	client                    *admissionregistrationv1.WebhookClientConfig
	rules                     []admissionregistrationv1.RuleWithOperations
	policy                    *admissionregistrationv1.FailurePolicyType
}

func (c *Check) hooks() (all []hook) {
	for i := range c.facts.Mutating {
		of := &c.facts.Mutating[i]
		for j := range of.Webhooks {
			w := &of.Webhooks[j]
			all = append(all, hook{mutating, of.Name, w.Name, j, &w.ClientConfig, w.Rules, w.FailurePolicy})
		}
	}
	for i := range c.facts.Validating {
		of := &c.facts.Validating[i]
		for j := range of.Webhooks {
			w := &of.Webhooks[j]
			all = append(all, hook{validating, of.Name, w.Name, j, &w.ClientConfig, w.Rules, w.FailurePolicy})
		}
	}
	return all
}

// whose is empty for the webhooks of others.
func (h *hook) whose() string {
	switch service := h.client.Service; {
	case strings.HasSuffix(h.name, ".outrigger.io"):
		return outrigger
	case strings.HasPrefix(h.configuration, "kruise-"), service != nil && strings.HasPrefix(service.Name, "kruise-"):
		return openKruise
	}
	return ""
}

// about is empty for webhooks that neither inject nor are asked about SidecarSets.
func (h *hook) about() string {
	for i := range h.rules {
		rule := &h.rules[i]
		if h.kind == mutating && covers(rule, "", aboutPods, admissionregistrationv1.Create) {
			return aboutPods
		}
		if covers(rule, v1alpha1.GroupVersion.Group, aboutSets, admissionregistrationv1.Create, admissionregistrationv1.Update) {
			return aboutSets
		}
	}
	return ""
}

func covers(rule *admissionregistrationv1.RuleWithOperations, group, resource string, operations ...admissionregistrationv1.OperationType) bool {
	operation := slices.ContainsFunc(rule.Operations, func(o admissionregistrationv1.OperationType) bool {
		return o == admissionregistrationv1.OperationAll || slices.Contains(operations, o)
	})
	return operation && (slices.Contains(rule.APIGroups, group) || slices.Contains(rule.APIGroups, "*")) &&
		slices.ContainsFunc(rule.Resources, func(r string) bool { return r == resource || r == "*" || r == "*/*" })
}

// refuses reports whether requests are refused when nobody answers.
func (h *hook) refuses() bool { return h.policy == nil || *h.policy == admissionregistrationv1.Fail }

func (h *hook) object() string { return h.kind + "/" + h.configuration }

// asked are the webhooks of one owner for one purpose.
func asked(hooks []hook, whose, kind, about string) (found []hook) {
	for _, h := range hooks {
		if h.whose() == whose && h.kind == kind && h.about() == about {
			found = append(found, h)
		}
	}
	return found
}

// checkServing looks at who answers for pods and SidecarSets.
func (c *Check) checkServing() {
	hooks := c.hooks()
	for _, h := range hooks {
		if whose, about := h.whose(), h.about(); whose != "" && about != "" {
			policy := admissionregistrationv1.Fail
			if !h.refuses() {
				policy = admissionregistrationv1.Ignore
			}
			c.report.Answerers = append(c.report.Answerers, Answerer{about, whose, h.kind, h.configuration, h.name, string(policy)})
		}
	}
	c.checkDead(hooks)
	var beside []hook
	for _, duty := range []struct{ kind, about, topic, alone, nobody string }{
		{mutating, aboutPods, "injection", "new pods are injected by OpenKruise", "no new pod gets sidecars"},
		{mutating, aboutSets, "admission", "SidecarSets are completed by OpenKruise", "SidecarSets that are written get no hashes"},
		{validating, aboutSets, "admission", "SidecarSets are judged by OpenKruise", "nothing is refused of SidecarSets that are written"},
	} {
		theirs, ours := asked(hooks, openKruise, duty.kind, duty.about), asked(hooks, outrigger, duty.kind, duty.about)
		switch {
		case len(theirs)+len(ours) == 0:
			c.find(Blocks, duty.topic, "", "Nobody is asked: %s.", duty.nobody)
		case len(ours) == 0:
			c.find(Note, duty.topic, theirs[0].object(), "Outrigger is not asked yet: %s.", duty.alone)
		case len(theirs) > 0:
			c.checkBoth(duty.topic, theirs, ours)
			beside = append(beside, theirs...)
		}
	}
	c.addRemovals(beside)
}

// addRemovals adds to the first finding about a configuration what removes all of
// these webhooks from it at once: places in it are counted.
func (c *Check) addRemovals(hooks []hook) {
	removed := map[string]bool{}
	for i := range c.report.Findings {
		f := &c.report.Findings[i]
		of := slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return h.object() != f.Object })
		if f.Remedy == "" && len(of) > 0 && !removed[f.Object] {
			removed[f.Object] = true
			f.Remedy = removal(of)
		}
	}
}

// checkBoth looks at two that are asked for the same. API servers ask in the order of
// the configurations' names, and whoever is asked last has the last word.
func (c *Check) checkBoth(topic string, theirs, ours []hook) {
	for _, h := range theirs {
		effect, order := Differs, "Outrigger is asked after it, and puts its own in place of what is there already: nothing is there twice."
		switch {
		case h.kind == validating:
			order = "SidecarSets must please both."
		case h.configuration > ours[0].configuration:
			effect, order = Blocks, "It is asked after Outrigger, by the order of names, and may add what is there already."
		}
		c.find(effect, topic, h.object(), "Webhook %s answers beside Outrigger's. %s Remove it once its manager has stopped, which would put it back.", h.name, order)
	}
}

// checkDead looks for webhooks of a manager that is not there to answer.
func (c *Check) checkDead(hooks []hook) {
	deployments := managers(c.facts.Deployments)
	if len(deployments) == 0 || running(deployments) {
		return
	}
	dead := map[string][]hook{}
	var order []string
	for _, h := range hooks {
		if h.whose() != openKruise || h.client.Service == nil {
			continue
		}
		if dead[h.object()] == nil {
			order = append(order, h.object())
		}
		dead[h.object()] = append(dead[h.object()], h)
	}
	for _, object := range order {
		all := dead[object]
		refusing := slices.DeleteFunc(slices.Clone(all), func(h hook) bool { return !h.refuses() })
		if len(refusing) > 0 {
			c.find(Blocks, "admission", object, "Nobody answers for it, and %s of its webhooks refuse requests then, such as %s.", fmt.Sprint(len(refusing)), refusing[0].name).
				Remedy = "kubectl delete " + strings.ToLower(all[0].kind) + " " + all[0].configuration
		}
	}
}

// removal removes webhooks of one configuration, unless that has changed since.
func removal(hooks []hook) string {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	var operations []operation
	slices.SortFunc(hooks, func(a, b hook) int { return b.index - a.index })
	for _, h := range hooks {
		at := fmt.Sprintf("/webhooks/%d", h.index)
		operations = append(operations, operation{"test", at + "/name", h.name}, operation{Op: "remove", Path: at})
	}
	patch, _ := json.Marshal(operations) // strings alone cannot fail
	return fmt.Sprintf("kubectl patch %s %s --type=json -p '%s'", strings.ToLower(hooks[0].kind), hooks[0].configuration, patch)
}
