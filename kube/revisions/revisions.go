// Package revisions finds the ControllerRevisions of a SidecarSet in a cache.
package revisions

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// SetField is the index of cached revisions by the name of their SidecarSet.
const SetField = "sidecarset"

// AddIndex adds the index to a cache.
func AddIndex(ctx context.Context, cache client.FieldIndexer) error {
	if err := cache.IndexField(ctx, &appsv1.ControllerRevision{}, SetField, SetNames); err != nil {
		return fmt.Errorf("index revisions by SidecarSet: %w", err)
	}
	return nil
}

// SetNames returns the index keys of a revision.
func SetNames(revision client.Object) []string {
	if set := revision.GetLabels()[v1alpha1.SidecarSetNameLabel]; set != "" {
		return []string{set}
	}
	return nil
}

// List returns the cached revisions of a SidecarSet. Callers must not change the revisions,
// because the cache owns them.
func List(ctx context.Context, cache client.Reader, namespace, set string) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{SetField: set}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}
