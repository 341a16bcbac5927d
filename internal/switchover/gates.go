package switchover

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// patchPodMetadata is the only feature gate that OpenKruise and Outrigger have in common (SPEC
// §2).
const patchPodMetadata = "SidecarSetPatchPodMetadataDefaultsAllowed"

// podWebhook is the feature gate of OpenKruise for injection.
const podWebhook = "PodWebhook"

// Names of Deployments.
const (
	kruiseManager    = "kruise-controller-manager"
	outriggerWebhook = "outrigger-webhook"
	outriggerWorker  = "outrigger-worker"
)

// enabledResources is the environment variable that limits OpenKruise to some kinds of resources.
const enabledResources = "CUSTOM_RESOURCE_ENABLE"

// gate is a feature gate that a Deployment sets.
type gate struct {
	name string
	on   bool
}

// managers returns the Deployments of the manager of OpenKruise.
func managers(all []appsv1.Deployment) []appsv1.Deployment {
	return slices.DeleteFunc(slices.Clone(all), func(d appsv1.Deployment) bool {
		for i := range d.Spec.Template.Spec.Containers {
			if strings.Contains(d.Spec.Template.Spec.Containers[i].Image, "kruise-manager") {
				return false
			}
		}
		return d.Name != kruiseManager
	})
}

func named(all []appsv1.Deployment, name string) []appsv1.Deployment {
	return slices.DeleteFunc(slices.Clone(all), func(d appsv1.Deployment) bool { return d.Name != name })
}

// running reports whether a Deployment has replicas.
func running(d appsv1.Deployment) bool { return d.Spec.Replicas == nil || *d.Spec.Replicas > 0 }

// featureGates reads the flag --feature-gates of the containers of Deployments.
func featureGates(of []appsv1.Deployment) (gates []gate) {
	for i := range of {
		for _, c := range of[i].Spec.Template.Spec.Containers {
			words := slices.Concat(c.Command, c.Args)
			for at, word := range words {
				value, found := strings.CutPrefix(word, "--feature-gates=")
				if word == "--feature-gates" && at+1 < len(words) {
					value, found = words[at+1], true
				}
				for setting := range strings.SplitSeq(value, ",") {
					name, on, _ := strings.Cut(strings.TrimSpace(setting), "=")
					if found && name != "" {
						gates = append(gates, gate{name, strings.EqualFold(on, "true")})
					}
				}
			}
		}
	}
	return gates
}

// isOn reports whether the last setting of a gate is true. AllAlpha does not affect these gates.
func isOn(gates []gate, name string) (on bool) {
	for _, g := range gates {
		if g.name == name {
			on = g.on
		}
	}
	return on
}

// limited reports whether the environment of a Deployment limits OpenKruise to kinds other than SidecarSet.
func limited(d *appsv1.Deployment) bool {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			kinds := strings.FieldsFunc(e.Value, func(r rune) bool { return r == ',' || r == ' ' })
			if e.Name == enabledResources && len(kinds) > 0 && !slices.Contains(kinds, "SidecarSet") {
				return true
			}
		}
	}
	return false
}

// noteGates reports the feature gates of OpenKruise.
func (c *Check) noteGates() {
	var others []string
	for _, g := range c.gates {
		switch {
		case g.name != patchPodMetadata && g.name != podWebhook:
			others = append(others, g.name)
		case g.name == patchPodMetadata && g.on:
			c.find(Note, "feature gate", "", "%s is on. The flag of outrigger webhook is --feature-gates=%s=true.", g.name, g.name)
		case g.name == podWebhook && !g.on:
			c.find(Note, "feature gate", "", "%s is off: OpenKruise injects into no pods, and Outrigger will.", g.name)
		}
	}
	if len(others) > 0 {
		c.find(Note, "feature gate", "", "Not checked: %s. Outrigger has no such gates.", strings.Join(others, ", "))
	}
}

// checkControllers reports a manager of OpenKruise that upgrades pods of SidecarSets. Such a manager blocks
// the switchover while the worker of Outrigger also runs. If the API server calls webhooks of OpenKruise, but
// no manager is in the system namespace, checkControllers reports that the manager was not checked.
func (c *Check) checkControllers() {
	theirs := managers(c.facts.Deployments)
	if len(theirs) == 0 && len(c.facts.Unread) == 0 && slices.ContainsFunc(c.report.Answerers, func(a Answerer) bool { return a.Whose == openKruise }) {
		c.find(Note, "controllers", "", "The manager of OpenKruise is not in the system namespace. Its feature gates and its replicas were not checked.")
	}
	for i := range theirs {
		c.checkManager(&theirs[i])
	}
}

// checkManager reports a Deployment of the manager of OpenKruise that has replicas and upgrades pods of
// SidecarSets.
func (c *Check) checkManager(manager *appsv1.Deployment) {
	if !running(*manager) || limited(manager) {
		return
	}
	object := "Deployment/" + manager.Namespace + "/" + manager.Name
	if slices.ContainsFunc(named(c.facts.Deployments, outriggerWorker), running) {
		c.find(Blocks, "controllers", object, "It upgrades pods of SidecarSets, and so does %s: each of them counts only some of the unavailable pods.", outriggerWorker).Remedy = stop(manager)
		return
	}
	c.find(Note, "controllers", object, "It upgrades pods of SidecarSets. Stop it before outrigger operator and worker start.").Remedy = stop(manager)
}

func stop(d *appsv1.Deployment) string {
	return "kubectl scale -n " + d.Namespace + " deployment " + d.Name + " --replicas=0"
}
