package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// crashedAnnotation names the container that the simulated kubelet crashes from now on.
const crashedAnnotation = "kwok.outrigger.io/crashed"

// forEver is the label value of pods whose upgrades are always rejected.
const forEver = "ever"

// rename changes the image of a SidecarSet to another name of the same image.
func (w *fixture) rename(ctx context.Context, f Fault) error {
	return w.insist(ctx, func(ctx context.Context) error {
		set := &v1alpha1.SidecarSet{}
		if err := w.Kube.Get(ctx, types.NamespacedName{Name: f.Target}, set); err != nil {
			return client.IgnoreNotFound(err) // it is being recreated
		}
		next := otherName(set.Spec.Containers[0].Image)
		if next == "" {
			return nil
		}
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, next)
		return client.IgnoreNotFound(w.Kube.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch)))
	})
}

// otherName is the next name of an image that the simulated kubelet knows by the same ID;
// empty after the last one.
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

// crash makes the app of some pods crash from now on.
func (w *fixture) crash(ctx context.Context, f Fault) error {
	return w.eachPod(ctx, f, client.MatchingLabels{"app": f.Target}, w.merging(`{"metadata":{"annotations":{%q:"app"}}}`, crashedAnnotation))
}

// reject makes a policy reject the upgrades of a share of the pods of a deployment, for a
// while or forever.
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

// unmark lets the upgrades of pods pass again.
func (w *fixture) unmark(ctx context.Context, mark string) error {
	return w.eachPod(ctx, Fault{}, client.MatchingLabels{observer.RejectedLabel: mark}, w.merging(`{"metadata":{"labels":{%q:null}}}`, observer.RejectedLabel))
}

// makePolicy rejects other images of the pods that carry the label. Twins may be emptied, so
// that a started upgrade can complete.
func (w *fixture) makePolicy(ctx context.Context) error {
	const name = "rejected-pods"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.FailurePolicy = new(admissionv1.Fail)
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: observer.RejectedLabel, Operator: metav1.LabelSelectorOpExists},
		}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: `object.spec.containers.all(c, c.image.endsWith(":empty") || oldObject.spec.containers.exists(o, o.name == c.name && o.image == c.image))`,
		Message:    "images of this pod may not change",
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	for _, object := range []client.Object{policy, binding} {
		if err := w.Kube.Create(ctx, object); err != nil {
			return fmt.Errorf("create the policy that rejects upgrades: %w", err)
		}
	}
	return nil
}
