package switchover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/jsonpatch"
)

// Owners of webhooks.
const (
	openKruise = "OpenKruise"
	outrigger  = "Outrigger"
)

// Resources of webhooks.
const (
	aboutPods = "pods"
	aboutSets = "sidecarsets"
)

// Kinds of webhook configurations.
const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
)

// Names of the configurations and of the service of OpenKruise. Other products, such as Kruise Rollouts, have
// names with the same prefix.
const (
	openKruiseMutating   = "kruise-mutating-webhook-configuration"
	openKruiseValidating = "kruise-validating-webhook-configuration"
	openKruiseService    = "kruise-webhook-service"
)

// outriggerConfiguration is the name of the configurations of Outrigger in config/webhook.
const outriggerConfiguration = "outrigger"

// hook is a webhook of a configuration of either kind.
type hook struct {
	Answerer
	// index is the position in the configuration.
	index   int
	service bool
}

func (c *Check) hooks() (all []hook) {
	for i := range c.facts.Mutating {
		of := &c.facts.Mutating[i]
		for j := range of.Webhooks {
			all = append(all, newHook(mutating, of.Name, j, &of.Webhooks[j]))
		}
	}
	for i := range c.facts.Validating {
		of := &c.facts.Validating[i]
		for j := range of.Webhooks {
			w := &of.Webhooks[j]
			all = append(all, newHook(validating, of.Name, j, &admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			}))
		}
	}
	return all
}

// newHook returns the hook of a webhook. The field Whose is empty if the webhook belongs to neither
// OpenKruise nor Outrigger. The field About is empty if the rules match neither pods nor SidecarSets.
func newHook(kind, configuration string, index int, w *admissionregistrationv1.MutatingWebhook) hook {
	h := hook{index: index, service: w.ClientConfig.Service != nil, Answerer: Answerer{
		About: servedBy(kind, w.Rules), Kind: kind, Configuration: configuration, Webhook: w.Name, FailurePolicy: string(admissionregistrationv1.Fail),
	}}
	if w.FailurePolicy != nil {
		h.FailurePolicy = string(*w.FailurePolicy)
	}
	switch {
	case strings.HasSuffix(w.Name, ".outrigger.io"):
		h.Whose = outrigger
	case configuration == openKruiseMutating, configuration == openKruiseValidating, h.service && w.ClientConfig.Service.Name == openKruiseService:
		h.Whose = openKruise
	}
	return h
}

// servedBy returns the resource that the rules match, pods or SidecarSets, or "" if the rules match neither
// resource.
func servedBy(kind string, rules []admissionregistrationv1.RuleWithOperations) string {
	for i := range rules {
		if kind == mutating && covers(&rules[i], "", aboutPods, admissionregistrationv1.Create) {
			return aboutPods
		}
		if covers(&rules[i], v1alpha1.GroupVersion.Group, aboutSets, admissionregistrationv1.Create, admissionregistrationv1.Update) {
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

func (h *hook) rejects() bool { return h.FailurePolicy == string(admissionregistrationv1.Fail) }

func (h *hook) object() string { return h.Kind + "/" + h.Configuration }

func filter(hooks []hook, keep func(*hook) bool) []hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool { return !keep(&h) })
}

// called returns the webhooks of one owner and one kind for one resource.
func called(hooks []hook, whose, kind, about string) []hook {
	return filter(hooks, func(h *hook) bool { return h.Whose == whose && h.Kind == kind && h.About == about })
}

// checkServing checks the webhooks for pods and SidecarSets.
func (c *Check) checkServing() {
	hooks := c.hooks()
	for _, h := range hooks {
		if h.Whose != "" && h.About != "" {
			c.report.Answerers = append(c.report.Answerers, h.Answerer)
		}
	}
	c.checkDead(hooks)
	c.checkOrder(hooks)
	var beside []hook
	for _, duty := range []struct{ kind, about, topic, alone, none string }{
		{mutating, aboutPods, "injection", "OpenKruise injects into new pods", "no new pod gets sidecars"},
		{mutating, aboutSets, "admission", "OpenKruise completes SidecarSets", "SidecarSets are stored without hashes"},
		{validating, aboutSets, "admission", "OpenKruise validates SidecarSets", "SidecarSets are not validated"},
	} {
		theirs, ours := called(hooks, openKruise, duty.kind, duty.about), called(hooks, outrigger, duty.kind, duty.about)
		switch {
		case len(theirs)+len(ours) == 0:
			c.find(Blocks, duty.topic, "", "No webhook is called: %s.", duty.none)
		case len(ours) == 0:
			c.find(Note, duty.topic, theirs[0].object(), "The webhook of Outrigger is not called yet: %s.", duty.alone)
		case len(theirs) > 0:
			c.checkBoth(duty.topic, theirs, ours)
			beside = append(beside, theirs...)
		}
	}
	c.addRemovals(beside)
}

// addRemovals adds a remedy to the first finding about each configuration. One command removes
// all webhooks of a configuration, because the indexes of webhooks change with each removal.
func (c *Check) addRemovals(hooks []hook) {
	removed := map[string]bool{}
	for i := range c.report.Findings {
		f := &c.report.Findings[i]
		of := filter(hooks, func(h *hook) bool { return h.object() == f.Object })
		if f.Remedy == "" && len(of) > 0 && !removed[f.Object] {
			removed[f.Object] = true
			f.Remedy = removal(of)
		}
	}
}

// checkBoth reports webhooks of OpenKruise with the same purpose as webhooks of Outrigger. API servers call
// mutating webhooks in the order of the names of their configurations, so the last webhook determines the
// result. An object has to pass all validating webhooks.
func (c *Check) checkBoth(topic string, theirs, ours []hook) {
	for _, h := range theirs {
		effect, order := Differs, "The webhook of Outrigger is called after it and replaces its containers, so no container is injected twice."
		switch {
		case h.Kind == validating:
			order = "A SidecarSet has to pass both."
		case h.Configuration > ours[0].Configuration:
			effect, order = Blocks, "It is called after the webhook of Outrigger, by the order of names, and may inject again."
		}
		c.find(effect, topic, h.object(), "Webhook %s is called beside the webhook of Outrigger. %s Remove it after its manager has stopped: the manager would create it again.", h.Webhook, order)
	}
}

// checkOrder reports pod webhooks of other owners whose place in the order changes. API servers call such a
// webhook after the webhook of OpenKruise, but before the webhook of Outrigger. The names of the
// configurations determine the order.
func (c *Check) checkOrder(hooks []hook) {
	theirs := called(hooks, openKruise, mutating, aboutPods)
	if len(theirs) == 0 {
		return
	}
	for _, h := range called(hooks, "", mutating, aboutPods) {
		if theirs[0].Configuration < h.Configuration && h.Configuration < outriggerConfiguration {
			c.find(Differs, "order", h.object(), "Webhook %s is called for new pods after OpenKruise, but before Outrigger, by the order of names. It does not see "+
				"the sidecars any more, and shareVolumePolicy, transferEnv and resourcesPolicy take its containers for containers of the app.", h.Webhook).
				Remedy = "Give it reinvocationPolicy IfNeeded if it has to see sidecars: docs/migration.md"
		}
	}
}

// checkDead reports webhooks of OpenKruise if no manager of OpenKruise is running. The remedy keeps the
// configuration, because a manager does not start without the configuration. A manager may also run in a namespace
// that the check does not read, so a missing Deployment does not block the switchover.
func (c *Check) checkDead(hooks []hook) {
	deployments := managers(c.facts.Deployments)
	if slices.ContainsFunc(deployments, running) || len(deployments) == 0 && len(c.facts.Unread) > 0 {
		return
	}
	effect, text := Blocks, "No manager serves it, and %d of its webhooks reject requests, such as %s."
	if len(deployments) == 0 {
		effect, text = Note, "If no manager in another namespace serves it, %d of its webhooks reject requests, such as %s."
	}
	rejecting := filter(hooks, func(h *hook) bool { return h.Whose == openKruise && h.service && h.rejects() })
	for len(rejecting) > 0 {
		first := rejecting[0]
		all := len(rejecting)
		rejecting = filter(rejecting, func(h *hook) bool { return h.object() != first.object() })
		c.find(effect, "admission", first.object(), text, all-len(rejecting), first.Webhook).
			Remedy = fmt.Sprintf(`kubectl patch %s %s --type=merge -p '{"webhooks":[]}'`, strings.ToLower(first.Kind), first.Configuration)
	}
}

// removal returns a command that removes webhooks of one configuration. The command fails if the
// configuration has changed.
func removal(hooks []hook) string {
	var operations []jsonpatch.Operation
	slices.SortFunc(hooks, func(a, b hook) int { return b.index - a.index })
	for _, h := range hooks {
		at := fmt.Sprintf("/webhooks/%d", h.index)
		operations = append(operations, jsonpatch.Operation{Op: "test", Path: at + "/name", Value: h.Webhook}, jsonpatch.Operation{Op: "remove", Path: at})
	}
	patch, _ := json.Marshal(operations) // strings can always be encoded
	return fmt.Sprintf("kubectl patch %s %s --type=json -p '%s'", strings.ToLower(hooks[0].Kind), hooks[0].Configuration, patch)
}
