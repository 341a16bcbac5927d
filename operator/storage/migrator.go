// Package storage stores every SidecarSet in the storage version of the CustomResourceDefinition.
package storage

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
)

// propagationTime is the time for which the CustomResourceDefinition must be unchanged before the migration
// starts, so that all API servers observe the definition. propagationTime is also the time between two
// attempts.
const propagationTime = 10 * time.Second

// Migrator stores every SidecarSet in the storage version of the definition, and then removes all other
// versions from status.storedVersions. After the migration, a read of the storage version needs no conversion.
// The Migrator runs only in the leader, after each change of the definition.
type Migrator struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Clock measures the time for which the definition is unchanged.
	Clock clock.PassiveClock
	// seen is the definition of the last reconcile, and since is the time of the first reconcile with this
	// definition.
	seen struct {
		uid        types.UID
		generation int64
	}
	since time.Time
}

// AddTo adds the Migrator to a manager. The Migrator uses a separate cache, because the operator may have
// no permission to watch the definition. For example, the permission is missing if the image is updated
// before the ClusterRole. With a separate cache, the operator reconciles SidecarSets without this
// permission.
func (m *Migrator) AddTo(mgr manager.Manager) error {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	definitions, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{definition: {Field: fields.OneTermEqualSelector("metadata.name", crd.Name)}},
	})
	if err != nil {
		return fmt.Errorf("set up the watch over CustomResourceDefinition %s: %w", crd.Name, err)
	}
	c, err := controller.New("stored-versions", mgr, controller.Options{Reconciler: m, RateLimiter: kube.RateLimiter(), CacheSyncTimeout: math.MaxInt64})
	if err != nil {
		return fmt.Errorf("set up the migration of stored versions: %w", err)
	}
	changes := source.Kind(definitions, definition, &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{})
	if err := cmp.Or(mgr.Add(definitions), c.Watch(changes)); err != nil {
		return fmt.Errorf("set up the migration of stored versions: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (m *Migrator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	done, err := m.migrate(ctx)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // the creation of the definition causes the next reconcile
	}
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Info("cannot migrate the SidecarSets to the storage version; retrying", "cause", err.Error())
	}
	if err != nil || !done {
		return reconcile.Result{RequeueAfter: propagationTime}, nil
	}
	return reconcile.Result{}, nil
}

// migrate rewrites the SidecarSets if a webhook converts them. Without a conversion webhook, the
// API server would store the fields of one version under the name of the other version. done is
// true if there is nothing to do until the definition changes.
func (m *Migrator) migrate(ctx context.Context) (done bool, err error) {
	definition, err := crd.Get(ctx, m.Client)
	if err != nil {
		return false, err
	}
	storage := storageVersion(definition)
	if slices.Equal(definition.Status.StoredVersions, []string{storage}) || !crd.Converts(definition) {
		return true, nil
	}
	before := m.seen
	m.seen.uid, m.seen.generation = definition.UID, definition.Generation
	if before != m.seen {
		m.since = m.Clock.Now()
	}
	if m.Clock.Since(m.since) < propagationTime {
		return false, nil
	}
	count, err := m.rewriteAll(ctx, storage)
	if err != nil {
		return false, err
	}
	// If the definition has changed since the read, SidecarSets may have been stored in another version. In
	// this case, the patch fails.
	migrated := definition.DeepCopy()
	migrated.Status.StoredVersions = []string{storage}
	exactly := client.MergeFromWithOptions(definition, client.MergeFromWithOptimisticLock{})
	if err := m.Client.Status().Patch(ctx, migrated, exactly); err != nil {
		return false, fmt.Errorf("write status.storedVersions of CustomResourceDefinition %s: %w", definition.Name, err)
	}
	log.FromContext(ctx).Info("every SidecarSet is stored in one version", "version", storage, "sets", count, "before", definition.Status.StoredVersions)
	return true, nil
}

func storageVersion(definition *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

func (m *Migrator) rewriteAll(ctx context.Context, storage string) (int, error) {
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	if err := m.Client.List(ctx, sets); err != nil {
		return 0, fmt.Errorf("list SidecarSets to store them as %s: %w", storage, err)
	}
	for i := range sets.Items {
		if err := m.rewrite(ctx, &sets.Items[i], storage); err != nil {
			return 0, err
		}
	}
	return len(sets.Items), nil
}

// rewrite stores a SidecarSet in the storage version without other changes. rewrite updates the subresource
// status, because admission may reject a stored spec.
func (m *Migrator) rewrite(ctx context.Context, set *unstructured.Unstructured, storage string) error {
	if storage == v1alpha1.GroupVersion.Version {
		if err := storeOwnership(set); err != nil {
			return err
		}
	}
	err := m.Client.Status().Update(ctx, set)
	// A conflict means that another client has just written the SidecarSet, in the storage version.
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("store SidecarSet %s as %s: %w", set.GetName(), storage, err)
}

// storeOwnership sets the managed fields that the defaulting webhook sets at other writes.
func storeOwnership(set *unstructured.Unstructured) error {
	typed := &v1alpha1.SidecarSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(set.Object, typed); err != nil {
		return fmt.Errorf("read SidecarSet %s: %w", set.GetName(), err)
	}
	owners, err := conversion.StoredOwnership(typed)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.GetName(), err)
	}
	if owners != nil {
		set.SetManagedFields(owners)
	}
	return nil
}
