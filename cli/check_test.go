package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/kube/crd"
)

// part runs the command check, and returns the check of the part with the given name.
func part(t *testing.T, name string, funcs interceptor.Funcs, objects ...client.Object) (found view.Check) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		got := newInterceptedCluster(t, funcs, objects...).run("check", "-o", "json")
		for _, check := range read[view.Checks](t, got.out) {
			if check.Part == name {
				found = check
			}
		}
	})
	return found
}

func TestCheckProvesThatTheWebhookAnswers(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	fails := func(webhook, cause string) error {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "` + webhook + `": ` + cause))
	}
	for name, c := range map[string]struct {
		answer error
		change func(*admissionregistrationv1.MutatingWebhook)
		want   view.CheckState
	}{
		"the pod is admitted":        {nil, nil, view.CheckOK},
		"validation rejects the pod": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", field.ErrorList{}), nil, view.CheckOK},
		"a policy rejects the pod":   {apierrors.NewForbidden(pods, "p", errors.New(`violates PodSecurity "restricted:latest"`)), nil, view.CheckOK},
		"connection refused":         {fails("pods.outrigger.io", "connection refused"), nil, view.CheckFailed},
		"no answer in time":          {context.DeadlineExceeded, nil, view.CheckFailed},
		"another webhook is down":    {fails("sidecar-injector.istio.io", "connection refused"), nil, view.CheckUnknown},
		"the namespace terminates":   {apierrors.NewForbidden(pods, "p", errors.New("namespace default is being terminated")), nil, view.CheckUnknown},
		"no right to create pods":    {apierrors.NewForbidden(pods, "", errors.New(`User "ann" cannot create resource "pods"`)), nil, view.CheckUnknown},
		"too many requests":          {apierrors.NewTooManyRequestsError("later"), nil, view.CheckUnknown},
		"failurePolicy Ignore": {nil, func(w *admissionregistrationv1.MutatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		}, view.CheckUnknown},
		"objectSelector": {nil, func(w *admissionregistrationv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"sidecars": "yes"}}
		}, view.CheckUnknown},
		"not activated": {nil, func(w *admissionregistrationv1.MutatingWebhook) { w.Rules = nil }, view.CheckFailed},
		"no SidecarSet": {nil, following("false"), view.CheckUnknown},
		"a SidecarSet":  {nil, following(match.NewCondition(selecting("app", "a")).Expression()), view.CheckOK},
		"the webhook denies the pod of a SidecarSet": {apierrors.NewForbidden(pods, "p", errors.New(`admission webhook "pods.outrigger.io" denied the request: x`)), following(match.NewCondition(selecting("app", "a")).Expression()), view.CheckOK},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*admissionregistrationv1.MutatingWebhook) {}
			}
			got := part(t, "webhook", interceptor.Funcs{
				Create: func(ctx context.Context, cluster client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if _, ok := object.(*corev1.Pod); ok {
						return c.answer
					}
					return cluster.Create(ctx, object, options...)
				},
			}, installed(change), namespace("default"))
			assert.Equal(t, c.want, got.State, got.Message)
		})
	}
	assert.Equal(t, view.CheckFailed, part(t, "webhook", interceptor.Funcs{}).State, "no webhook is installed")
	assert.Equal(t, view.Check{Part: "webhook", State: view.CheckFailed, Message: "namespace default does not exist: name another one with -n (kubectl get namespaces)"},
		part(t, "webhook", interceptor.Funcs{}, installed(func(*admissionregistrationv1.MutatingWebhook) {})))
}

// following returns a function that sets the match condition of the SidecarSets to expression.
func following(expression string) func(*admissionregistrationv1.MutatingWebhook) {
	return func(w *admissionregistrationv1.MutatingWebhook) {
		w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: match.ConditionName, Expression: expression}}
	}
}

func selecting(key, value string) match.Scope {
	scope, _ := match.NewScope(&v1alpha1.SidecarSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}})
	return scope
}

func TestCheckProvesThatTheWebhookConverts(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}}
	definition.Spec.Group, definition.Spec.Names.Kind = v1alpha1.GroupVersion.Group, "SidecarSet"
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version, Served: true})
	}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
	definition.Status.StoredVersions = []string{"v1alpha1"}
	answers := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if object.GetObjectKind().GroupVersionKind().Version == "v1beta1" {
				return err
			}
			return cluster.Get(ctx, key, object, options...)
		}, List: func(ctx context.Context, cluster client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if all, ok := list.(*metav1.PartialObjectMetadataList); ok && all.GroupVersionKind().Kind == "SidecarSet" {
				// The API server may return a list from its cache, without a conversion.
				all.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}}
				return nil
			}
			return cluster.List(ctx, list, options...)
		}}
	}
	got := part(t, "definition", answers(nil), definition, sidecarSet(t, "logs"))
	assert.Equal(t, view.CheckOK, got.State, got.Message)
	dead := apierrors.NewInternalError(errors.New("conversion webhook for apps.kruise.io/v1alpha1, Kind=SidecarSet failed: connection refused"))
	got = part(t, "definition", answers(dead), definition, sidecarSet(t, "logs"))
	assert.Equal(t, view.CheckFailed, got.State)
	assert.Contains(t, got.Message, "the webhook that converts SidecarSets does not respond, so kubectl cannot read them in v1beta1: ")
	got = part(t, "definition", answers(context.DeadlineExceeded), definition, sidecarSet(t, "logs"))
	assert.Contains(t, got.Message, "the webhook that converts SidecarSets does not respond", "a frozen webhook")
	got = part(t, "definition", answers(apierrors.NewForbidden(schema.GroupResource{}, "logs", errors.New("no"))), definition, sidecarSet(t, "logs"))
	assert.Equal(t, view.CheckUnknown, got.State, "a user may not read SidecarSets")
}

func TestCheckCountsRolloutPolicies(t *testing.T) {
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "canary"}}
	assert.Equal(t, view.Check{Part: "policies", State: view.CheckOK, Message: "RolloutPolicies are installed (1)"}, part(t, "policies", interceptor.Funcs{}, policy))
	halted := policy.DeepCopy()
	halted.Status.Evictions = &outriggerv1.EvictionStatus{Message: "9 pods have to be recreated", Failed: []outriggerv1.FailedEviction{{SidecarSet: "logs"}}}
	found := part(t, "policies", interceptor.Funcs{}, halted)
	assert.Equal(t, view.CheckFailed, found.State)
	assert.Contains(t, found.Message, ": 9 pods have to be recreated; correct the cause, and edit the policy: kubectl edit rolloutpolicy ")
	policy.Spec.Windows = []outriggerv1.RolloutWindow{{Schedule: "0 9 * * *", TimeZone: "Mars/X"}}
	assert.Equal(t, view.Check{Part: "policies", State: view.CheckFailed, Message: "RolloutPolicy canary: windows[0]: timeZone: unknown time zone Mars/X, " +
		"so its rollouts do not start; correct it: kubectl edit rolloutpolicy canary"}, part(t, "policies", interceptor.Funcs{}, policy))
	over := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "friday"}, Spec: outriggerv1.RolloutFreezeSpec{Until: &metav1.Time{Time: noon.Add(-time.Hour)}}}
	nothing := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: outriggerv1.RolloutFreezeSpec{Selector: metav1.LabelSelector{
		MatchLabels: map[string]string{"tier": "edge"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"edge"}}},
	}}}
	assert.Equal(t, view.Check{Part: "policies", State: view.CheckOK, Message: "RolloutPolicies are installed (0); RolloutFreeze friday ended at " + over.Spec.Until.UTC().Format(time.RFC3339) +
		": kubectl sidecarset unfreeze friday; RolloutFreeze none selects nothing, because its requirements for label tier exclude each other: kubectl edit rolloutfreeze none"},
		part(t, "policies", interceptor.Funcs{}, over, nothing))
	failing := func(err error) interceptor.Funcs {
		return interceptor.Funcs{List: func(ctx context.Context, cluster client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ok := list.(*outriggerv1.RolloutPolicyList); ok {
				return err
			}
			return cluster.List(ctx, list, options...)
		}}
	}
	missing := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "outrigger.io", Kind: "RolloutPolicy"}}
	got := part(t, "policies", failing(missing))
	assert.Equal(t, view.CheckUnknown, got.State, "an older installation works")
	assert.Contains(t, got.Message, "apply config/crd")
	assert.Equal(t, view.CheckFailed, part(t, "policies", failing(errors.New("connection refused"))).State)
}

func TestCheckWaitsForASignOfLifeOfTheOperator(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: view.OperatorLease}}
	lease.Spec.HolderIdentity = new("operator-1")
	// The clock of the cluster is an hour ahead.
	lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(time.Hour)}
	// renewing renews the Lease at each read.
	renewing := interceptor.Funcs{
		Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := cluster.Get(ctx, key, object, options...)
			if read, ok := object.(*coordinationv1.Lease); ok && err == nil {
				read.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			}
			return err
		},
	}
	observed := sidecarSet(t, "logs")
	observed.Generation, observed.Status.ObservedGeneration = 2, 2
	behind := observed.DeepCopy()
	behind.Status = v1alpha1.SidecarSetStatus{ObservedGeneration: 1}

	got := part(t, "operator", renewing, lease, observed)
	assert.Equal(t, view.Check{Part: "operator", State: view.CheckOK, Message: "operator-1 leads, and has observed all SidecarSets"}, got)
	got = part(t, "operator", interceptor.Funcs{}, lease, observed)
	assert.Equal(t, view.CheckFailed, got.State)
	assert.Regexp(t, "^the operator does not respond, and status may be old: the operator has not renewed Lease kruise-system/outrigger-operator for .*: namespace kruise-system has no Deployment of the operator: ", got.Message)
	// The operator may have stopped immediately after a renewal of the Lease.
	ended := lease.DeepCopy()
	ended.Spec.RenewTime = &metav1.MicroTime{Time: noon}
	assert.Equal(t, view.CheckFailed, part(t, "operator", interceptor.Funcs{}, ended, observed).State)
	// The rate limiter of the client rejects requests that may end after the deadline of their context.
	late := func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < time.Second {
			return errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
		}
		return nil
	}
	limited := interceptor.Funcs{
		Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			return errors.Join(late(ctx), renewing.Get(ctx, cluster, key, object, options...))
		},
		List: func(ctx context.Context, cluster client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			return errors.Join(late(ctx), cluster.List(ctx, list, options...))
		},
	}
	got = part(t, "operator", limited, lease, behind)
	assert.Equal(t, view.Check{Part: "operator", State: view.CheckFailed, Message: "the operator did not observe generation 2 of SidecarSet logs within 5s: " +
		"namespace kruise-system has no Deployment of the operator: start its process outside of the cluster again (on a local stack: make start ROLE=operator), or install it"}, got)
	deleted, invalid := behind.DeepCopy(), behind.DeepCopy()
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"example.com/wait"}
	invalid.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonInvalid, ObservedGeneration: behind.Generation}}
	for _, set := range []*v1alpha1.SidecarSet{deleted, invalid} {
		assert.Equal(t, view.CheckOK, part(t, "operator", renewing, lease, set).State, "the operator cannot observe the generation")
	}
	assert.Equal(t, view.CheckUnknown, part(t, "operator", interceptor.Funcs{}, observed, namespace("kruise-system")).State, "the operator may run without leader election")
	assert.Equal(t, view.Check{Part: "operator", State: view.CheckFailed, Message: "namespace kruise-system does not exist: name the namespace of the operator with --system-namespace"},
		part(t, "operator", interceptor.Funcs{}, observed))
}

func TestTheNextCommandFitsTheDeploymentOfARole(t *testing.T) {
	const kubectl, selected = "kubectl -n kruise-system ", " -l app.kubernetes.io/component=operator"
	labels := map[string]string{"app.kubernetes.io/component": "operator"}
	deployment := func(replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "outrigger-operator", Labels: labels}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	}
	pod := func(status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: "operator-1", Labels: labels}, Status: status}
	}
	for want, objects := range map[string][]client.Object{
		"namespace kruise-system has no Deployment of the operator: start its process outside of the cluster again (on a local stack: make start ROLE=operator), or install it": nil,
		"deployment/outrigger-operator has 0 replicas: " + kubectl + "scale deployment/outrigger-operator --replicas=2":                                                         {deployment(0)},
		"deployment/outrigger-operator has no pod: " + kubectl + "describe replicaset" + selected:                                                                               {deployment(2)},
		"pod operator-1 is Ready: " + kubectl + "logs" + selected + "; to restart: " + kubectl + "rollout restart deployment/outrigger-operator": {deployment(2),
			pod(corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})},
		"pod operator-1 is Running and not ready: " + kubectl + "describe pods" + selected: {deployment(2),
			pod(corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}})},
		"pod operator-1 is Unschedulable: " + kubectl + "describe pods" + selected: {deployment(2),
			pod(corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}})},
		"pod operator-1 is CrashLoopBackOff: " + kubectl + "describe pods" + selected: {deployment(2),
			pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}})},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: view.OperatorLease}}
		lease.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-time.Minute)}
		got := part(t, "operator", interceptor.Funcs{}, append(objects, lease)...)
		assert.Equal(t, view.Check{Part: "operator", State: view.CheckFailed, Message: "the operator does not respond, and status may be old: the operator has not renewed Lease kruise-system/outrigger-operator for 1m3s" +
			" (after a start, the operator leads within 15s; without --leader-elect, the operator renews no Lease): " + want}, got)
	}
}

func TestEachCommandNamesTheFaultOfTheInstallation(t *testing.T) {
	const (
		temporal = "Temporal at t:7233 does not respond"
		workers  = "Temporal responds, but no worker claims the tasks in task queue q (Temporal at t:7233, namespace n)"
		silent   = "the operator does not respond, and status may be old: the operator has not renewed Lease kruise-system/outrigger-operator for "
		old      = " (after a start, the operator leads within 15s; without --leader-elect, the operator renews no Lease): namespace kruise-system has no Deployment of the operator: " +
			"start its process outside of the cluster again (on a local stack: make start ROLE=operator), or install it"
		late    = -time.Hour
		noFault = "logs: kubectl sidecarset why logs" // The problem is that no pod matches.
	)
	set := sidecarSet(t, "logs")
	set.Status.ObservedGeneration = 1
	for name, c := range map[string]struct {
		age    time.Duration
		renews bool
		fault  string
		want   string
	}{
		"renewed before":                                      {time.Second, false, "", noFault},
		"the clock of the cluster is slow":                    {time.Hour, true, "", noFault},
		"the clock of the cluster is fast":                    {late, true, "", noFault},
		"nobody renews":                                       {2 * time.Second, false, "", "Operator: " + silent + "4s" + old},
		"nobody renews, and the clock of the cluster is fast": {late, false, "", "Operator: " + silent + "2s" + old},
		"the operator cannot report any more":                 {time.Minute, false, "EngineUnavailable: " + temporal, "Operator: " + silent + "1m2s" + old},
		"no Temporal": {time.Second, false, "EngineUnavailable: " + temporal,
			"Temporal: " + temporal + "; rollouts continue by themselves once it responds; start its process again (on a local stack: make start ROLE=temporal)"},
		"no workers": {time.Second, false, "WorkerUnavailable: " + workers,
			"Workers: " + workers + ": namespace kruise-system has no Deployment of the worker: start its process outside of the cluster again (on a local stack: make start ROLE=worker-1), or install it"},
		"a fault of a later version": {time.Second, false, "Other: cause", noFault},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: view.OperatorLease}}
				lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-c.age)}
				if c.fault != "" {
					lease.Annotations = map[string]string{v1alpha1.FaultAnnotation: c.fault}
				}
				cluster := newInterceptedCluster(t, interceptor.Funcs{
					Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						err := cluster.Get(ctx, key, object, options...)
						if read, ok := object.(*coordinationv1.Lease); ok && err == nil && c.renews {
							read.Spec.RenewTime.Time = time.Now().Add(-c.age)
						}
						return err
					},
				}, lease, set, namespace("default"))
				list := cluster.shows("list")
				_, line, _ := strings.Cut(strings.TrimSuffix(list, "\n"), "\n")
				_, line, _ = strings.Cut(line, "\n")
				assert.Equal(t, c.want, line, list)
			})
		})
	}
}

// Without --temporal-address, the command check connects to a server on this machine.
func TestSpec8_10_1_CheckTellsAWrongAddressFromATemporalThatIsDown(t *testing.T) {
	refused := errors.New("Temporal at 127.0.0.1:7233, namespace default: connection refused (…)")
	const (
		healthy = "; the operator reports no outage of Temporal (a report takes up to ten seconds), so the address of this command may be wrong: " +
			"set --temporal-address or TEMPORAL_ADDRESS to the Temporal of the operator, or forward a port to this Temporal"
		noWorker = ", but: no worker: namespace kruise-system has no Deployment of the worker: " +
			"start its process outside of the cluster again (on a local stack: make start ROLE=worker-1), or install it"
		next = "; rollouts continue by themselves once it responds; start its process again (on a local stack: make start ROLE=temporal)"
	)
	for name, c := range map[string]struct {
		renews bool
		// after is the time after which the operator reports a fault.
		after time.Duration
		fault string
		want  string
	}{
		"the operator reports no fault":                  {true, 0, "", refused.Error() + healthy},
		"the operator reports a fault":                   {true, 0, "EngineUnavailable: no answer", refused.Error() + next},
		"the operator reports a fault two seconds later": {true, 2 * time.Second, "EngineUnavailable: no answer", refused.Error() + next},
		"no worker polls":                                {true, 0, "WorkerUnavailable: no worker", refused.Error() + healthy + noWorker},
		"the operator does not respond":                  {false, 0, "", refused.Error() + next},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: view.OperatorLease}}
				lease.Spec.RenewTime = &metav1.MicroTime{Time: began}
				s := newInterceptedCluster(t, interceptor.Funcs{
					Get: func(ctx context.Context, cluster client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						err := cluster.Get(ctx, key, object, options...)
						if read, ok := object.(*coordinationv1.Lease); ok && err == nil {
							if c.renews {
								read.Spec.RenewTime.Time = time.Now()
							}
							if c.fault != "" && time.Since(began) >= c.after {
								read.Annotations = map[string]string{v1alpha1.FaultAnnotation: c.fault}
							}
						}
						return err
					},
				}, lease)
				i := &installation{cluster: &cluster{Reader: s.Client, live: s.Client, systemNamespace: "kruise-system"}}
				assert.EqualError(t, i.unreachedTemporal(t.Context(), refused, false), c.want)
				assert.EqualError(t, i.unreachedTemporal(t.Context(), refused, true), refused.Error()+next, "a Temporal that does not respond in time")
			})
		})
	}
}

func TestCheckNamesTheGrantOfEachMissingRight(t *testing.T) {
	got := part(t, "rights", interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
	})
	assert.Equal(t, view.CheckUnknown, got.State)
	for _, want := range []string{
		"get mutatingwebhookconfigurations (restart, why, list --missing; only ClusterRole cluster-admin has it)", "create pods/eviction (restart; ClusterRole edit)",
		"patch sidecarsets (set image, undo; ClusterRole outrigger-edit)", "list pods (status, plan, why, restart; ClusterRole view)",
	} {
		assert.Contains(t, got.Message, want)
	}
}
