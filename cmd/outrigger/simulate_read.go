package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/simulate"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// defaultPrecedence is the default of matchingPrecedence in the definition of RolloutPolicies. The simulation
// sets this default if the API server cannot validate the policy.
const defaultPrecedence = 1000

// defaultDomains is the default of maxUnavailableDomains in the definition of RolloutPolicies.
const defaultDomains = 1

// readPolicy reads a RolloutPolicy from a file, or from in if file is "-". For an unknown field, readPolicy
// returns an error.
func readPolicy(file string, in io.Reader) (*outriggerv1.RolloutPolicy, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the RolloutPolicy: %w (correct --filename)", err)
	}
	policy, err := parsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("read the RolloutPolicy in %s: %w", file, err)
	}
	return policy, nil
}

func parsePolicy(data []byte) (*outriggerv1.RolloutPolicy, error) {
	document, err := onlyDocument(data)
	if err != nil {
		return nil, err
	}
	converted, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(converted, &kind); err != nil {
		return nil, err
	}
	if want := outriggerv1.GroupVersion.String(); kind.APIVersion != want || kind.Kind != "RolloutPolicy" {
		return nil, fmt.Errorf("the document is not a RolloutPolicy of %s, but kind %q of %q: use the file of a RolloutPolicy", want, kind.Kind, kind.APIVersion)
	}
	policy := &outriggerv1.RolloutPolicy{}
	unknown, err := kubejson.UnmarshalStrict(converted, policy)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0:
		return nil, fmt.Errorf("%w: correct the spelling (kubectl explain rolloutpolicy.spec)", errors.Join(unknown...))
	case policy.Name == "":
		return nil, errors.New("the RolloutPolicy has no metadata.name: add one")
	}
	return policy, nil
}

// onlyDocument returns the document of data that is not empty, or nil if all documents are empty. If several
// documents are not empty, onlyDocument returns an error.
func onlyDocument(data []byte) (document []byte, err error) {
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		next, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF):
			return document, nil
		case err != nil:
			return nil, err
		case onlyComments(next):
		case document != nil:
			return nil, errors.New("it has several documents: give one document per file")
		default:
			document = next
		}
	}
}

// onlyComments reports whether a document contains only comments, separators and empty lines.
func onlyComments(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// simulationSource reads the objects of a simulation from the API server.
type simulationSource struct{ client.Client }

// read returns the input of a simulation. The notes describe the differences between the simulation and the
// cluster.
func (s simulationSource) read(ctx context.Context, name string, policy *outriggerv1.RolloutPolicy) (in *simulate.Input, notes []string, err error) {
	set, err := s.set(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	policy, invalid, err := s.validated(ctx, policy)
	if err != nil {
		return nil, nil, err
	}
	notes = append(notes, invalid...)
	differs, err := s.whetherItApplies(ctx, set, policy)
	if err != nil {
		return nil, nil, err
	}
	notes = append(notes, differs...)
	in = &simulate.Input{Set: set, Policy: policy, NamespaceLabels: kube.NamespaceLabels(ctx, s)}
	if in.Pods, err = s.pods(ctx, set); err != nil {
		return nil, nil, err
	}
	var freezes outriggerv1.RolloutFreezeList
	if err := s.List(ctx, &freezes); err != nil && !kube.MissingKind(err) {
		return nil, nil, fmt.Errorf("list RolloutFreezes: %w", err)
	}
	in.Freezes = freezes.Items
	var unknown []string
	in.Cluster, unknown, err = s.limits(ctx, &policy.Spec, in.Pods)
	return in, append(notes, unknown...), err
}

func (s simulationSource) set(ctx context.Context, name string) (*v1alpha1.SidecarSet, error) {
	set := &v1alpha1.SidecarSet{}
	err := s.Get(ctx, client.ObjectKey{Name: name}, set)
	switch {
	case kube.MissingKind(err):
		return nil, fmt.Errorf("read SidecarSet %s: the API server does not serve SidecarSets: install Outrigger, or correct --kubeconfig", name)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("SidecarSet %s does not exist: kubectl get sidecarsets lists the names for --sidecarset", name)
	case err != nil:
		return nil, fmt.Errorf("read SidecarSet %s: %w", name, err)
	}
	return revision.Completed(set)
}

// validated returns the policy as the API server would store the policy. The dry run needs the permission to
// create policies, and writes nothing. If the API server cannot validate the policy, validated returns the
// policy with the default precedence, and a note with the reason.
func (s simulationSource) validated(ctx context.Context, policy *outriggerv1.RolloutPolicy) (*outriggerv1.RolloutPolicy, []string, error) {
	stored := policy.DeepCopy()
	// With generateName, an existing policy with the same name causes no conflict.
	stored.ObjectMeta = metav1.ObjectMeta{GenerateName: "simulated-", Labels: policy.Labels, Annotations: policy.Annotations}
	err := s.Create(ctx, stored, client.DryRunAll)
	stored.Name = policy.Name
	if policy.Spec.MatchingPrecedence == 0 {
		policy.Spec.MatchingPrecedence = defaultPrecedence
	}
	if domains := policy.Spec.Domains; domains != nil && domains.MaxUnavailableDomains == 0 {
		domains.MaxUnavailableDomains = defaultDomains
	}
	switch status := apierrors.APIStatus(nil); {
	case err == nil:
		return stored, nil, nil
	case kube.MissingKind(err):
		return policy, []string{"the API server did not validate the policy, because the definition of RolloutPolicies is not installed (apply config/crd)"}, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource "): // Admission also denies with status 403.
		return policy, []string{"the API server did not validate the policy, because you may not create RolloutPolicies"}, nil
	case errors.As(err, &status) && apierrors.IsInvalid(err):
		return nil, nil, fmt.Errorf("RolloutPolicy %s is invalid: %s (kubectl explain rolloutpolicy.spec)", policy.Name, causesOf(status.Status()))
	}
	return nil, nil, fmt.Errorf("validate RolloutPolicy %s: %w", policy.Name, err)
}

// causesOf returns the causes of a rejection. If another webhook rejects without causes, causesOf returns the
// message.
func causesOf(status metav1.Status) string {
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return status.Message
	}
	var causes []string
	for _, cause := range status.Details.Causes {
		causes = append(causes, cause.Field+": "+cause.Message)
	}
	return strings.Join(causes, "; ")
}

// whetherItApplies returns a note with the reason if the policy would not apply to the SidecarSet, or if no
// rollout can start.
func (s simulationSource) whetherItApplies(ctx context.Context, set *v1alpha1.SidecarSet, policy *outriggerv1.RolloutPolicy) ([]string, error) {
	var all outriggerv1.RolloutPolicyList
	if err := s.List(ctx, &all); err != nil && !kube.MissingKind(err) {
		return nil, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	alone, err := stage.PolicyOf(set, []outriggerv1.RolloutPolicy{*policy})
	switch {
	case err != nil:
		return nil, err
	case alone == nil:
		return []string{fmt.Sprintf("this policy does not apply to SidecarSet %s, because its selector does not select it; the simulation applies it", set.Name)}, nil
	}
	others := slices.DeleteFunc(all.Items, func(other outriggerv1.RolloutPolicy) bool { return other.Name == policy.Name })
	found, err := stage.PolicyOf(set, append(others, *policy))
	switch {
	case err != nil:
		return []string{"no rollout starts in this cluster: " + err.Error()}, nil
	case found.Name != policy.Name:
		return []string{fmt.Sprintf("this policy does not apply to SidecarSet %s, because RolloutPolicy %s has precedence (matchingPrecedence %d); the simulation applies it",
			set.Name, found.Name, found.Spec.MatchingPrecedence)}, nil
	}
	return nil, nil
}

// pods lists the pods that a SidecarSet selects by label.
func (s simulationSource) pods(ctx context.Context, set *v1alpha1.SidecarSet) ([]*corev1.Pod, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if match.MatchesNothing(set.Spec.Selector) {
		return nil, nil
	}
	return s.listPods(ctx, client.MatchingLabelsSelector{Selector: scope.PodSelector()}, client.InNamespace(scope.OneNamespace()))
}

func (s simulationSource) listPods(ctx context.Context, options ...client.ListOption) (pods []*corev1.Pod, err error) {
	for next := ""; ; {
		page := &corev1.PodList{}
		if err := s.List(ctx, page, append(options, client.Limit(podPage), client.Continue(next))...); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		for i := range page.Items {
			pods = append(pods, &page.Items[i])
		}
		if next = page.Continue; next == "" {
			return pods, nil
		}
	}
}

// limits reads the objects on which the limits of the policy depend. If the user may not read these objects,
// the simulation ignores the limit, and a note in unknown names the reason.
func (s simulationSource) limits(ctx context.Context, policy *outriggerv1.RolloutPolicySpec, pods []*corev1.Pod) (cluster rollout.Cluster, unknown []string, err error) {
	if policy.Domains != nil {
		nodes := kube.NewNodeLabels(s, clock.RealClock{})
		cluster.Domain, err = nodes.Values(ctx, policy.Domains.TopologyKey, func(func(string) bool) {})
		switch {
		case apierrors.IsForbidden(err):
			unknown = append(unknown, "the simulation ignores domains, because you may not list nodes")
		case err != nil:
			return cluster, nil, err
		}
	}
	if policy.RespectPodDisruptionBudgets {
		cluster.Budgets, err = s.budgets(ctx, pods)
		switch {
		case apierrors.IsForbidden(err):
			unknown = append(unknown, "the simulation ignores PodDisruptionBudgets: "+err.Error())
		case err != nil:
			return cluster, nil, err
		}
	}
	return cluster, unknown, nil
}

// budgets reads the PodDisruptionBudgets and the pods of the namespaces of a rollout.
func (s simulationSource) budgets(ctx context.Context, pods []*corev1.Pod) (*rollout.Budgets, error) {
	var all policyv1.PodDisruptionBudgetList
	if err := s.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	byNamespace := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		if _, known := byNamespace[pod.Namespace]; known {
			continue
		}
		found, err := s.listPods(ctx, client.InNamespace(pod.Namespace))
		if err != nil {
			return nil, err
		}
		byNamespace[pod.Namespace] = found
	}
	return rollout.NewBudgets(all.Items, byNamespace), nil
}
