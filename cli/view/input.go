package view

import (
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/rollout"
)

// Input is the data about one SidecarSet that models are made from.
type Input struct {
	Set *v1alpha1.SidecarSet
	// Pods may include pods that the SidecarSet does not match.
	Pods []*corev1.Pod
	// NamespaceLabels reads the labels of a namespace.
	NamespaceLabels func(string) (map[string]string, error)
	// Revisions are the revisions of the SidecarSet, sorted. Revisions is empty if the revisions cannot be read.
	Revisions []*appsv1.ControllerRevision
	Run       RunInput
	Webhook   Webhook
	Nodes     Nodes
	// Policy is the RolloutPolicy that status names. Policy is nil if status names no policy, or if the policy
	// cannot be read.
	Policy *outriggerv1.RolloutPolicy
	// Fault is the part of the installation that does not answer.
	Fault Fault
	// Now is the current time. The ends of bake times and the durations of upgrades in progress are computed
	// from Now.
	Now time.Time
	// SystemNamespace is the namespace of Outrigger.
	SystemNamespace string
}

// RunInput is the state of the open run of a SidecarSet.
type RunInput struct {
	// Status is nil without an open run.
	Status *protocol.RolloutStatus
	// Rejected are the pods whose writes the API server rejected.
	Rejected []protocol.RejectedPod
	// Unknown is the reason that the state of the run is not known.
	Unknown string
	// NotResponding reports that the run did not answer, although Temporal did.
	NotResponding bool
	// Unreachable reports that Temporal did not answer.
	Unreachable bool
	// Temporal is the address and the namespace that were read.
	Temporal string
}

// Webhook is the webhook of pods.
type Webhook struct {
	// Installed is nil if the webhook is absent or cannot be read.
	Installed *admissionv1.MutatingWebhook
	Absent    bool
}

// matched returns the matched pods, with their states towards the version of the SidecarSet.
func (in *Input) matched() ([]rollout.Pod, *podstate.Version, error) {
	pods, err := rollout.Population(in.Set, in.Pods, in.NamespaceLabels)
	if err != nil {
		return nil, nil, err
	}
	version, err := podstate.NewVersion(in.Set)
	return pods, version, err
}

// entryOf returns the record of the SidecarSet set in pod. The record is empty if the annotation cannot be
// read.
func entryOf(pod *corev1.Pod, set string) record.Entry {
	entries, err := record.Hashes(pod.Annotations)
	if err != nil {
		return record.Entry{}
	}
	return entries[set]
}
