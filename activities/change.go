package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

// attempts is how often a pod is read anew when it changes under our hands.
const attempts = 3

// change is one guarded write to one pod.
type change struct {
	// decide looks at the pod as it was read and says what to write.
	decide func(context.Context, *corev1.Pod) (decision, error)
	write  func(context.Context, *corev1.Pod, []byte) error
}

// decision about a pod. The zero decision leaves it alone.
type decision struct {
	// done pods have the change already.
	done bool
	// patch carries uid and resourceVersion, so that it fits this pod in this
	// state only.
	patch []byte
	// refusal says why no patch can be made for this pod.
	refusal error
}

// change takes one pod through a change, or notes why not. A pod that changed
// since it was read is looked at again as it is now.
func (a *Activities) change(ctx context.Context, reference protocol.PodReference, outcome *outcome, c change) error {
	reader := a.Cache
	for range attempts {
		again, err := a.attempt(ctx, reader, reference, outcome, c)
		if err != nil || !again {
			return err
		}
		reader = a.Live
	}
	return nil
}

func (a *Activities) attempt(ctx context.Context, reader client.Reader, reference protocol.PodReference, outcome *outcome, c change) (again bool, err error) {
	pod, err := a.read(ctx, reader, reference)
	if err != nil {
		return false, fmt.Errorf("read pod %s: %w", reference, err)
	}
	if pod == nil {
		return false, nil
	}
	decided, err := c.decide(ctx, pod)
	switch {
	case err != nil:
		return false, err
	case decided.refusal != nil:
		outcome.failed(reference, decided.refusal.Error())
	case decided.done:
		outcome.wrote(reference, pod.ResourceVersion)
	case decided.patch != nil:
		return write(ctx, pod, decided.patch, outcome, c)
	}
	return false, nil
}

func write(ctx context.Context, pod *corev1.Pod, patch []byte, outcome *outcome, c change) (again bool, err error) {
	reference := protocol.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	err = c.write(ctx, pod, patch)
	switch {
	case err == nil:
		outcome.wrote(reference, pod.ResourceVersion)
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err):
	case refused(err):
		outcome.failed(reference, reason(err))
	default:
		outcome.wrote(reference, "")
		return false, fmt.Errorf("write pod %s: %w", reference, err)
	}
	return false, nil
}

func (a *Activities) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	// Of the answer only the resourceVersion is of use.
	written := &metav1.PartialObjectMetadata{}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	written.Namespace, written.Name = pod.Namespace, pod.Name
	if err := a.Writer.Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return err
	}
	pod.ResourceVersion = written.ResourceVersion
	return nil
}

// stateOf compares one pod with the set, if it is one of its matched pods.
func (a *Activities) stateOf(ctx context.Context, set *v1alpha1.SidecarSet, pod *corev1.Pod) (state podstate.State, matched bool, err error) {
	population, err := rollout.Population(set, []*corev1.Pod{pod}, a.namespaceLabels(ctx))
	if err != nil || len(population) == 0 {
		return podstate.State{}, false, err
	}
	return population[0].State, true, nil
}
