package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/kube"
)

// storageInterval is the time between two checks of the stored versions, and how long a
// definition must be unchanged before sets are migrated: by then it has reached all API
// servers.
const storageInterval = 10 * time.Second

// storageMigrator stores every SidecarSet in the definition's storage version, and then
// removes the others from status.storedVersions. From then on reading sets needs no
// conversion. It runs on the leader alone.
type storageMigrator struct {
	// client reads past the cache.
	client client.Client
	clock  clock.WithTicker
	log    logr.Logger
	// seen is the definition of the last check.
	seen struct {
		uid        types.UID
		generation int64
	}
}

// Start implements manager.Runnable.
func (m *storageMigrator) Start(ctx context.Context) error {
	tick := m.clock.NewTicker(storageInterval)
	defer tick.Stop()
	for {
		if err := m.migrate(ctx); err != nil && ctx.Err() == nil {
			m.log.Info("SidecarSets stay stored in several versions for now", "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// migrate rewrites the sets while a webhook converts them: without, the fields of one
// version would be stored under the name of the other.
func (m *storageMigrator) migrate(ctx context.Context) error {
	definition, err := kube.CRD(ctx, m.client)
	if err != nil {
		return err
	}
	storage := storageVersion(definition)
	if slices.Equal(definition.Status.StoredVersions, []string{storage}) || !kube.Converts(definition) {
		return nil
	}
	before := m.seen
	m.seen.uid, m.seen.generation = definition.UID, definition.Generation
	if before != m.seen {
		return nil
	}
	count, err := m.rewriteAll(ctx, storage)
	if err != nil {
		return err
	}
	// While the definition was changed, sets may have been stored in another version.
	migrated := definition.DeepCopy()
	migrated.Status.StoredVersions = []string{storage}
	exactly := client.MergeFromWithOptions(definition, client.MergeFromWithOptimisticLock{})
	if err := m.client.Status().Patch(ctx, migrated, exactly); err != nil {
		return fmt.Errorf("write status.storedVersions of CustomResourceDefinition %s: %w", definition.Name, err)
	}
	m.log.Info("every SidecarSet is stored in one version", "version", storage, "sets", count, "before", definition.Status.StoredVersions)
	return nil
}

func storageVersion(definition *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

func (m *storageMigrator) rewriteAll(ctx context.Context, storage string) (int, error) {
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	if err := m.client.List(ctx, sets); err != nil {
		return 0, fmt.Errorf("list SidecarSets to store them as %s: %w", storage, err)
	}
	for i := range sets.Items {
		if err := m.rewrite(ctx, &sets.Items[i], storage); err != nil {
			return 0, err
		}
	}
	return len(sets.Items), nil
}

// rewrite changes nothing but the version that is stored. It updates status, because
// admission may refuse a spec that is stored already.
func (m *storageMigrator) rewrite(ctx context.Context, set *unstructured.Unstructured, storage string) error {
	if storage == v1alpha1.GroupVersion.Version {
		if err := storeOwnership(set); err != nil {
			return err
		}
	}
	err := m.client.Status().Update(ctx, set)
	// A set that has just been written is stored in the storage version.
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("store SidecarSet %s as %s: %w", set.GetName(), storage, err)
}

// storeOwnership sets managed fields as defaulting does at other writes.
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
