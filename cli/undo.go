package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/output"
)

func newUndo(s *shared) *cobra.Command {
	var to, dryRun string
	cmd := s.ofSet(&cobra.Command{
		Use:        "undo NAME",
		SuggestFor: []string{"rollback"},
		Short:      "Write an earlier revision back, as a new generation",
		Long: "Write an earlier revision back, as a new generation: containers, init containers, volumes, imagePullSecrets,\n" +
			"patchPodMetadata, and the custom version of that content. Selectors and strategies stay.\n" +
			"With --dry-run=client -o yaml, the command only prints the manifest, for a repository that is the source of truth.",
		Example: `  kubectl sidecarset undo logs                   # back to the revision before the present one
  kubectl sidecarset undo logs --to-revision 3   # a number, a name or a custom version
  kubectl sidecarset undo logs --dry-run=client -o yaml > logs.yaml`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().StringVar(&to, "to-revision", "", "number, name or custom version of the `revision`; without the flag: the previous revision")
	addDryRun(cmd, &dryRun)
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if err := checkDryRun(dryRun); err != nil {
			return nil, err
		}
		if to == "" && cmd.Flags().Changed("to-revision") {
			return nil, errors.New("--to-revision: give a number, a name or a custom version; without the flag, undo restores the previous revision")
		}
		return s.undo(ctx, c, args[0], to, dryRun)
	}, output.JSON, output.YAML)
}

func (s *shared) undo(ctx context.Context, c *cluster, name, reference, dryRun string) (model, error) {
	v, err := c.versions(ctx, name)
	if err != nil {
		return nil, err
	}
	to, err := v.previous()
	if reference != "" {
		to, err = v.find(reference)
	}
	if err != nil {
		return nil, err
	}
	fields, err := contentOf(to)
	if err != nil {
		return nil, err
	}
	current, err := v.current()
	if err != nil {
		return nil, err
	}
	set := &unstructured.Unstructured{} // set keeps fields that are not in the Go types of this program.
	set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(revision.OwnerKind))
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(v.set), set); err != nil {
		return nil, explain(err, "get SidecarSet "+v.set.Name)
	}
	s.showPause(ctx, v.set)
	done := undone{set, fmt.Sprintf("sidecarset/%s is at revision %s already", v.set.Name, labelOf(to)), nextOfRollout(v.set)}
	if !revision.Equal(to.Data.Raw, current.Data.Raw) {
		done.message = fmt.Sprintf("sidecarset/%s goes back to revision %s: %s", v.set.Name, labelOf(to), changedImages(&v.set.Spec, to))
		before := set.DeepCopy()
		if err := restore(set, fields, customVersionOf(to, reference), to.Annotations[v1alpha1.ChangeCauseAnnotation]); err != nil {
			return nil, err
		}
		if err := c.patch(ctx, v.set, before, set, dryRun); err != nil {
			return nil, err
		}
	}
	if dryRun != "none" {
		done.message += " (" + dryRun + " dry run)"
		done.next = []string{"next: the same command without --dry-run"}
	}
	return done, nil
}

// nextOfRollout returns the next command after a change of a SidecarSet. If the rollout is paused or frozen,
// nextOfRollout returns lines about the pauses and the freeze instead.
func nextOfRollout(set *v1alpha1.SidecarSet) []string {
	var paused []string
	if set.Spec.UpdateStrategy.Paused {
		paused = append(paused, "paused: "+view.PausedBySpec(set.Name))
	}
	if status := set.Status.Rollout; status != nil && status.Pause != nil {
		paused = append(paused, "paused: "+view.PausedBySignal(set.Name, &protocol.Pause{By: status.Pause.By, Reason: status.Pause.Reason}))
	}
	if frozen := view.Frozen(set); frozen != "" {
		paused = append(paused, frozen)
	}
	if len(paused) > 0 {
		return paused
	}
	return []string{"next: kubectl sidecarset status " + set.Name + " --watch"}
}

// withoutEnded removes the condition Progressing from set if an accepted request ends the freeze that this
// condition shows, because the operator updates the status later. An abort ends the wait for a permit or a
// window, and a freeze that allows rollbacks. A promotion of all steps ends the wait for a window.
func (c *cluster) withoutEnded(ctx context.Context, set *v1alpha1.SidecarSet, request string, full bool, now time.Time) {
	progressing := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing == nil {
		return
	}
	switch reason := progressing.Reason; {
	case request == string(outriggerv1.VerbPermit) && reason == v1alpha1.ReasonAwaitingPermit,
		request == protocol.AbortUpdate && (reason != v1alpha1.ReasonFrozen || !c.freezesRollback(ctx, set, now)),
		request == protocol.PromoteUpdate && full && reason == v1alpha1.ReasonOutsideWindow:
		meta.RemoveStatusCondition(&set.Status.Conditions, progressing.Type)
	}
}

// freezesRollback reports whether a RolloutFreeze stops the rollback of set. If the RolloutFreezes cannot be
// read, freezesRollback returns true.
func (c *cluster) freezesRollback(ctx context.Context, set *v1alpha1.SidecarSet, now time.Time) bool {
	var freezes outriggerv1.RolloutFreezeList
	err := c.List(ctx, &freezes)
	return err != nil || stage.FreezeFor(set, &protocol.Stage{Generation: set.Generation, Quarantine: &protocol.Quarantine{}}, freezes.Items, now) != nil
}

// changedImages returns a text that names the images that differ between the spec and the revision.
func changedImages(from *v1alpha1.SidecarSetSpec, to *appsv1.ControllerRevision) string {
	var restored v1alpha1.SidecarSetSpec
	if err := revision.Restore(to.Data.Raw, &restored); err != nil {
		return "its images cannot be read: " + err.Error()
	}
	before, after := imagesOf(from), imagesOf(&restored)
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			changes = append(changes, fmt.Sprintf("%s=%s → %s", name, before[name], cmp.Or(after[name], "none")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == "" {
			changes = append(changes, fmt.Sprintf("%s=none → %s", name, after[name]))
		}
	}
	if len(changes) == 0 {
		return "same images"
	}
	return strings.Join(changes, ", ")
}

func imagesOf(spec *v1alpha1.SidecarSetSpec) map[string]string {
	found := map[string]string{}
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		found[container.Name] = container.Image
	}
	return found
}

// restore replaces the content, the custom version and the change cause of a SidecarSet. Otherwise, the
// operator would record the custom version and the change cause of the replaced content in the restored
// revision.
func restore(set *unstructured.Unstructured, fields map[string]any, customVersion, changeCause string) error {
	label := []string{"metadata", "labels", v1alpha1.CustomVersionLabel}
	unstructured.RemoveNestedField(set.Object, label...)
	// If no webhook converted the SidecarSet, the custom version is in the spec.
	unstructured.RemoveNestedField(set.Object, "spec", "customVersion")
	var errs []error
	if customVersion != "" {
		errs = append(errs, unstructured.SetNestedField(set.Object, customVersion, label...))
	}
	cause := []string{"metadata", "annotations", v1alpha1.ChangeCauseAnnotation}
	unstructured.RemoveNestedField(set.Object, cause...)
	if changeCause != "" {
		errs = append(errs, unstructured.SetNestedField(set.Object, changeCause, cause...))
	}
	for key, value := range fields {
		unstructured.RemoveNestedField(set.Object, "spec", key)
		if value != nil {
			errs = append(errs, unstructured.SetNestedField(set.Object, value, "spec", key))
		}
	}
	return errors.Join(errs...)
}

// customVersionOf returns reference if reference is a custom version of the revision, or else the newest
// custom version of the revision. If the revision has no custom version, customVersionOf returns an empty
// string.
func customVersionOf(found *appsv1.ControllerRevision, reference string) string {
	all := revision.CustomVersions(found)
	switch {
	case len(all) == 0:
		return ""
	case slices.Contains(all, reference):
		return reference
	}
	return all[len(all)-1]
}

// patch writes the changes from before to set. If the generation, the labels or the annotations of the
// SidecarSet have changed since read, patch returns an error. If only the status has changed, patch retries the
// write.
func (c *cluster) patch(ctx context.Context, read *v1alpha1.SidecarSet, before, set *unstructured.Unstructured, dryRun string) error {
	options := []client.PatchOption{client.FieldOwner(name)}
	switch dryRun {
	case "client":
		return nil
	case "server":
		options = append(options, client.DryRunAll)
	}
	before.SetResourceVersion(read.ResourceVersion)
	changed := false
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		patched := set.DeepCopy()
		err := c.live.Patch(ctx, patched, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
		if !apierrors.IsConflict(err) {
			*set = *patched
			return err
		}
		now, failed := c.set(ctx, read.Name) // c.set adds the same defaults as in read.
		if failed != nil {
			return failed
		}
		if now.UID != read.UID || now.Generation != read.Generation || !maps.Equal(now.Labels, read.Labels) || !maps.Equal(now.Annotations, read.Annotations) {
			changed = true
			return nil
		}
		before.SetResourceVersion(now.ResourceVersion)
		return err
	})
	if changed || apierrors.IsConflict(err) {
		return fmt.Errorf("SidecarSet %s was changed in the meantime: check it, and try again", set.GetName())
	}
	if err != nil {
		return explain(err, "patch SidecarSet "+set.GetName())
	}
	return nil
}

// undone is a restored SidecarSet. The structured output is the manifest, without the fields that the API
// server and Outrigger write.
type undone struct {
	set     *unstructured.Unstructured
	message string
	// next contains the lines about the rollout that follows.
	next []string
}

func (u undone) Text(view.Style) string {
	return u.message + "\n" + strings.Join(u.next, "\n") + "\n"
}

func (u undone) MarshalJSON() ([]byte, error) {
	set := u.set.DeepCopy()
	unstructured.RemoveNestedField(set.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(set.Object, "metadata", field)
	}
	annotations := set.GetAnnotations()
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.HashWithoutImageAnnotation, "kubectl.kubernetes.io/last-applied-configuration"} {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	set.SetAnnotations(annotations)
	return json.Marshal(set.Object)
}
