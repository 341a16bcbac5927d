package switchover

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
)

// openKruise simulates the webhooks of OpenKruise with internal/inject. test/conformance checks
// internal/inject against recordings of OpenKruise.
type openKruise struct {
	*httptest.Server
	scenario *scenario
	// stopped is true if the manager of OpenKruise is scaled to zero.
	stopped atomic.Bool
	// late is true if openKruise receives a request for a pod that Outrigger has injected.
	late atomic.Bool
}

func (s *scenario) startOpenKruise() *openKruise {
	k := &openKruise{scenario: s}
	handlers := http.NewServeMux()
	handlers.HandleFunc("/mutate-pod", k.answer(k.injection))
	handlers.HandleFunc("/", k.answer(func(*admissionv1.AdmissionRequest) (any, error) { return nil, nil }))
	k.Server = httptest.NewTLSServer(handlers)
	s.t.Cleanup(k.Close)
	return k
}

func (k *openKruise) answer(patch func(*admissionv1.AdmissionRequest) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if k.stopped.Load() || json.NewDecoder(r.Body).Decode(&review) != nil {
			panic(http.ErrAbortHandler)
		}
		operations, err := patch(review.Request)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil}
		if err != nil {
			review.Response.Result = &metav1.Status{Message: err.Error()}
		} else if operations != nil {
			review.Response.Patch, _ = json.Marshal(operations)
			kind := admissionv1.PatchTypeJSONPatch
			review.Response.PatchType = &kind
		}
		_ = json.NewEncoder(w).Encode(review)
	}
}

func (k *openKruise) injection(request *admissionv1.AdmissionRequest) (any, error) {
	pod, sets := &corev1.Pod{}, &v1alpha1.SidecarSetList{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return nil, err
	}
	if pod.Annotations[v1alpha1.InjectedListAnnotation] != "" {
		k.late.Store(true)
	}
	if err := k.scenario.client.List(k.scenario.ctx, sets); err != nil {
		return nil, err
	}
	var matching []*inject.Set
	for i := range sets.Items {
		set := &sets.Items[i]
		scope, err := match.NewScope(&set.Spec)
		if err != nil {
			return nil, err
		}
		if scope.Labels(pod.Labels) {
			prepared, err := inject.Prepare(set, set.Status.LatestRevision)
			if err != nil {
				return nil, err
			}
			matching = append(matching, prepared)
		}
	}
	injection, err := inject.Pod(pod, matching, metav1.Now())
	if err != nil {
		return nil, err
	}
	return injection.Patch(), nil
}

// install creates the objects of the OpenKruise chart that affect SidecarSets.
func (k *openKruise) install() {
	s := k.scenario
	s.t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate().Raw})
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		url := k.URL + path
		return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: certificate}
	}
	rules := func(group, version, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}}
	}
	none, ignore, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore, admissionregistrationv1.Fail
	versions := []string{"v1"}
	const create, update = admissionregistrationv1.Create, admissionregistrationv1.Update
	except := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "mpod.kb.io", ClientConfig: at("/mutate-pod"), Rules: rules("", "v1", "pods", create), NamespaceSelector: except, FailurePolicy: &ignore, SideEffects: &none, AdmissionReviewVersions: versions},
			{Name: "mcloneset.kb.io", ClientConfig: at("/mutate-cloneset"), Rules: rules("apps.kruise.io", "v1alpha1", "clonesets", create, update), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: versions},
			{Name: "msidecarset.kb.io", ClientConfig: at("/mutate-sidecarset"), Rules: rules("apps.kruise.io", "v1alpha1", "sidecarsets", create, update), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: versions},
		},
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "vsidecarset.kb.io", ClientConfig: at("/validate-sidecarset"), Rules: rules("apps.kruise.io", "v1alpha1", "sidecarsets", create, update), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: versions},
		},
	}
	require.NoError(s.t, s.client.Create(s.ctx, mutating))
	require.NoError(s.t, s.client.Create(s.ctx, validating))
	one := int32(1)
	labels := map[string]string{"control-plane": "controller-manager"}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.SystemNamespace, Name: "kruise-controller-manager"}}
	manager.Spec = appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}}
	manager.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "manager", Image: "openkruise/kruise-manager:v1.9.0",
		Args: []string{"--enable-leader-election", "--feature-gates=SidecarSetPatchPodMetadataDefaultsAllowed=true,ImagePullJobGate=true"},
	}}}}
	require.NoError(s.t, s.client.Create(s.ctx, manager))
}
