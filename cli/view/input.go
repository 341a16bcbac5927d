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

// Input contains the data about one SidecarSet from which the models are computed.
type Input struct {
	Set *v1alpha1.SidecarSet
	// Pods may include pods that the SidecarSet does not match.
	Pods []*corev1.Pod
	// NamespaceLabels reads the labels of a namespace.
	NamespaceLabels func(string) (map[string]string, error)
	// Revisions contains the revisions of the SidecarSet, the oldest first. Revisions is empty if the
	// revisions cannot be read.
	Revisions []*appsv1.ControllerRevision
	Run       RunInput
	Webhook   Webhook
	Nodes     Nodes
	// Policy is the RolloutPolicy that the status names. Policy is nil if the status names no policy, or if
	// the policy cannot be read.
	Policy *outriggerv1.RolloutPolicy
	// Fault is the part of the installation that does not respond.
	Fault Fault
	// Now is the current time. The ends of bake times and the durations of upgrades in progress are computed
	// from Now.
	Now time.Time
	// SystemNamespace is the namespace of Outrigger.
	SystemNamespace string
}

// RunInput is the state of the open run of a SidecarSet.
type RunInput struct {
	// Status is nil if no run is open, or if the run is unknown.
	Status *protocol.RolloutStatus
	// Rejected contains the pods whose writes the API server rejected.
	Rejected []protocol.RejectedPod
	// Unknown is the reason why the state of the run is unknown.
	Unknown string
	// NotResponding is set if the run did not respond although Temporal responded.
	NotResponding bool
	// Unreachable is set if Temporal did not respond.
	Unreachable bool
	// Temporal is the address of Temporal and the namespace from which the run was read.
	Temporal string
}

// Webhook is the webhook of pods.
type Webhook struct {
	// Installed is nil if the webhook is absent or cannot be read.
	Installed *admissionv1.MutatingWebhook
	Absent    bool
}

// matched returns the matched pods with their states, and the version of the SidecarSet with which the states
// are computed.
func (in *Input) matched() ([]rollout.Pod, *podstate.Version, error) {
	pods, err := rollout.Population(in.Set, in.Pods, in.NamespaceLabels)
	if err != nil {
		return nil, nil, err
	}
	version, err := podstate.NewVersion(in.Set)
	return pods, version, err
}

// entryOf returns the record of the SidecarSet set in pod. If the annotation cannot be read, the record is
// empty.
func entryOf(pod *corev1.Pod, set string) record.Entry {
	entries, err := record.Hashes(pod.Annotations)
	if err != nil {
		return record.Entry{}
	}
	return entries[set]
}
