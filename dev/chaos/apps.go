package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/observer"
)

// crashedAnnotation is the annotation whose value is the name of a container. The simulated kubelet makes this
// container crash.
const crashedAnnotation = "kwok.outrigger.io/crashed"

// forEver is the value of observer.RejectedLabel for pods whose upgrades are rejected until the last rollout.
const forEver = "ever"

// rename changes the image of a SidecarSet to another name of the same image.
func (w *fixture) rename(ctx context.Context, f Fault) error {
	return w.insist(ctx, func(ctx context.Context) error {
		set, err := w.get(ctx, f.Target)
		if err != nil {
			return client.IgnoreNotFound(err) // Another fault may be recreating the SidecarSet.
		}
		next := otherName(set.Spec.Containers[0].Image)
		if next == "" {
			return nil
		}
		return client.IgnoreNotFound(w.patch(ctx, f.Target, container("image", strconv.Quote(next))))
	})
}

// otherName returns another name of an image. The simulated kubelet reports the same image ID for both names.
// If there is no further name, otherName returns an empty string.
func otherName(image string) string {
	const registry = "docker.io/library/"
	name, _, pinned := strings.Cut(strings.TrimPrefix(image, registry), "@")
	digest := fmt.Sprintf("@sha256:%x", sha256.Sum256([]byte(name)))
	switch written := strings.HasPrefix(image, registry); {
	case strings.HasSuffix(name, ":bad"), written && pinned:
		return ""
	case pinned:
		return registry + name + digest
	case written:
		return name + digest
	}
	return registry + name
}

// crash makes the app of some pods crash repeatedly.
func (w *fixture) crash(ctx context.Context, f Fault) error {
	return w.eachPod(ctx, f, client.MatchingLabels{"app": f.Target}, w.merging(`{"metadata":{"annotations":{%q:"app"}}}`, crashedAnnotation))
}

// reject makes a policy reject the upgrades of a share of the pods of a Deployment, for the duration of the
// fault. If the fault has no duration, the policy rejects the upgrades until the last rollout.
func (w *fixture) reject(ctx context.Context, f Fault) error {
	mark := fmt.Sprintf("fault-%d", f.Number)
	if f.For == 0 {
		mark = forEver
	}
	label := w.merging(`{"metadata":{"labels":{%q:%q}}}`, observer.RejectedLabel, mark)
	err := w.eachPod(ctx, f, client.MatchingLabels{"app": f.Target}, func(ctx context.Context, pod *corev1.Pod) error {
		if pod.Labels[observer.RejectedLabel] != "" {
			return nil
		}
		return label(ctx, pod)
	})
	if f.For == 0 {
		return err
	}
	last(ctx, f)
	return errors.Join(err, w.unmark(ctx, mark))
}

// unmark removes the label with the value mark from pods, so that the policy accepts upgrades of these pods
// again.
func (w *fixture) unmark(ctx context.Context, mark string) error {
	return w.eachPod(ctx, Fault{}, client.MatchingLabels{observer.RejectedLabel: mark}, w.merging(`{"metadata":{"labels":{%q:null}}}`, observer.RejectedLabel))
}

// policy rejects upgrades of pods with observer.RejectedLabel.
//
//go:embed policy.yaml
var policy []byte
