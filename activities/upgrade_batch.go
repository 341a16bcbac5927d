package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// attempts is how often a pod is read anew when it changes under our hands.
const attempts = 3

// UpgradeBatch upgrades the chosen pods, each with one guarded write. Pods
// that are gone, changed, or upgraded already are no errors; a pod whose write
// the API server refuses is reported and stops nothing. It fails only when the
// API server cannot be reached, and may then be called again.
func (a *Activities) UpgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	var outcome outcome
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.Writers)
	stopBeating := a.keepBeating(ctx)
	defer stopBeating()
	for _, pod := range input.Pods {
		group.Go(func() error {
			stop := activity.GetWorkerStopChannel(ctx)
			select {
			case <-groupCtx.Done():
				return groupCtx.Err()
			case <-stop:
				return errStopping
			default:
			}
			return a.upgradePod(groupCtx, input, pod, &outcome)
		})
	}
	err := group.Wait()
	return outcome.result(input.Pods), err
}

func (a *Activities) keepBeating(ctx context.Context) (stop func()) {
	beating, stop := context.WithCancel(ctx)
	go func() {
		ticker := a.Clock.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case <-ticker.C():
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return stop
}

// upgradePod takes one pod to the target, or notes why not. A pod that changed
// since it was read is looked at again as it is now.
func (a *Activities) upgradePod(ctx context.Context, input protocol.UpgradeBatchInput, chosen protocol.SelectedPod, outcome *outcome) error {
	reader := a.Cache
	for range attempts {
		changed, err := a.attempt(ctx, reader, input, chosen, outcome)
		if err != nil || !changed {
			return err
		}
		reader = a.Live
	}
	return nil
}

func (a *Activities) attempt(
	ctx context.Context, reader client.Reader, input protocol.UpgradeBatchInput, chosen protocol.SelectedPod, outcome *outcome,
) (changed bool, err error) {
	set, stopped, err := a.fence(ctx, input)
	if err != nil {
		return false, err
	}
	if stopped != "" {
		outcome.stop(stopped)
		return false, nil
	}
	pod, do, err := a.judge(ctx, reader, set, chosen)
	switch {
	case err != nil || do == skip:
		return false, err
	case do == done:
		outcome.wrote(chosen, pod.ResourceVersion)
		return false, nil
	}
	patch, err := a.patch(set, pod)
	if err != nil {
		outcome.failed(chosen, err.Error())
		return false, nil
	}
	return a.write(ctx, pod, patch, chosen, outcome)
}

func (a *Activities) write(ctx context.Context, pod *corev1.Pod, patch []byte, chosen protocol.SelectedPod, outcome *outcome) (changed bool, err error) {
	err = a.Pods.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
	switch {
	case err == nil:
		outcome.wrote(chosen, pod.ResourceVersion)
	case apierrors.IsConflict(err):
		return true, nil
	case apierrors.IsNotFound(err):
	case refused(err):
		outcome.failed(chosen, reason(err))
	default:
		return false, fmt.Errorf("upgrade pod %s: %w", chosen.PodReference, err)
	}
	return false, nil
}

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this.
func (a *Activities) fence(ctx context.Context, input protocol.UpgradeBatchInput) (set *v1alpha1.SidecarSet, stopped string, err error) {
	set, err = a.set(ctx, input.SidecarSet)
	switch {
	case err != nil:
		return nil, "", err
	case set == nil:
		return nil, "the SidecarSet is gone", nil
	case set.Generation != input.Generation:
		return nil, fmt.Sprintf("generation is %d", set.Generation), nil
	case set.Spec.UpdateStrategy.Paused:
		return nil, "paused", nil
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return nil, "updates are off", nil
	}
	return set, "", nil
}

// verdict on one chosen pod.
type verdict int

const (
	skip verdict = iota
	done
	upgradable
)

// judge looks at the chosen pod as it is now.
func (a *Activities) judge(ctx context.Context, reader client.Reader, set *v1alpha1.SidecarSet, chosen protocol.SelectedPod) (*corev1.Pod, verdict, error) {
	pod := &corev1.Pod{}
	err := reader.Get(ctx, types.NamespacedName{Namespace: chosen.Namespace, Name: chosen.Name}, pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != chosen.UID {
		return nil, skip, nil
	}
	if err != nil {
		return nil, skip, fmt.Errorf("read pod %s: %w", chosen.PodReference, err)
	}
	population, err := rollout.Population(set, []corev1.Pod{*pod}, a.namespaceLabels(ctx))
	if err != nil {
		return nil, skip, err
	}
	if len(population) == 0 {
		return nil, skip, nil
	}
	state := population[0].State
	switch {
	case state.Updated:
		return pod, done, nil
	case !state.Upgradable || state.Waits() || chosen.Unready && state.Ready:
		return nil, skip, nil
	}
	return pod, upgradable, nil
}

func (a *Activities) patch(set *v1alpha1.SidecarSet, pod *corev1.Pod) ([]byte, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	name, err := revision.Current(set)
	if err != nil {
		return nil, err
	}
	target := upgrade.Target{Version: version, Revision: name, Metadata: set.Spec.PatchPodMetadata}
	return upgrade.Cold(pod, target, metav1.NewTime(a.Clock.Now()))
}

// refused tells an answer about this pod from trouble with the API server.
func refused(err error) bool {
	switch {
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown,
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnauthorized(err):
		return false
	}
	return true
}

// reason says why a write was refused without the server's message: that may
// quote the pod, and with it what must not enter the history.
func reason(err error) string {
	text := string(apierrors.ReasonForError(err))
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text += fmt.Sprintf("; %s: %s", cause.Field, cause.Type)
		}
	}
	return text
}

// outcome collects what became of the pods of a batch.
type outcome struct {
	mu       sync.Mutex
	written  map[protocol.PodReference]string
	refusals map[protocol.PodReference]string
	stopped  string
}

func (o *outcome) wrote(pod protocol.SelectedPod, resourceVersion string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[protocol.PodReference]string{}
	}
	o.written[pod.PodReference] = resourceVersion
}

func (o *outcome) failed(pod protocol.SelectedPod, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusals == nil {
		o.refusals = map[protocol.PodReference]string{}
	}
	o.refusals[pod.PodReference] = why
}

func (o *outcome) stop(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = why
}

// result lists the pods in the order they were chosen in.
func (o *outcome) result(pods []protocol.SelectedPod) protocol.UpgradeBatchResult {
	result := protocol.UpgradeBatchResult{Stopped: o.stopped}
	for _, pod := range pods {
		if version, ok := o.written[pod.PodReference]; ok {
			result.Written = append(result.Written, protocol.WrittenPod{PodReference: pod.PodReference, ResourceVersion: version})
		} else if reason, ok := o.refusals[pod.PodReference]; ok {
			result.Failed = append(result.Failed, protocol.FailedPod{PodReference: pod.PodReference, Reason: reason})
		} else {
			result.Skipped++
		}
	}
	return result
}
