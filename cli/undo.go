package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/output"
)

// undo are the flags of the command.
type undo struct {
	to, dryRun string
	output     output.Flag
}

func newUndo(s *shared) *cobra.Command {
	var u undo
	cmd := &cobra.Command{
		Use:   "undo NAME",
		Short: "Write an earlier revision back, as a new generation",
		Long: "Write an earlier revision back, as a new generation: containers, init containers, volumes, imagePullSecrets,\n" +
			"patchPodMetadata, and the custom version of that content. Selectors and strategies stay. With --dry-run=client\n" +
			"-o yaml it prints the manifest instead, for a repository that is the source of truth.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if u.dryRun != "none" && u.dryRun != "client" && u.dryRun != "server" {
				return fmt.Errorf("--dry-run %q: use none, client or server", u.dryRun)
			}
			if u.to == "" && cmd.Flags().Changed("to-revision") {
				return errors.New("--to-revision: give a number, a name or a custom version; without the flag it is the one before")
			}
			return s.undo(cmd.Context(), args[0], u)
		},
	}
	u.output.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().StringVar(&u.to, "to-revision", "", "number, name or custom version of the `revision`; without it: the one before")
	cmd.Flags().StringVar(&u.dryRun, "dry-run", "none", "none; client: write nothing; server: have the API server try it")
	return cmd
}

func (s *shared) undo(ctx context.Context, name string, u undo) error {
	c, err := s.cluster()
	if err != nil {
		return err
	}
	v, err := c.versions(ctx, name)
	if err != nil {
		return err
	}
	to, err := v.previous()
	if u.to != "" {
		to, err = v.find(u.to)
	}
	if err != nil {
		return err
	}
	content, err := restoredFrom(to, u.to)
	if err != nil {
		return err
	}
	current, err := v.current()
	if err != nil {
		return err
	}
	written := "is at revision " + labelOf(to) + " already"
	var result *unstructured.Unstructured
	if !revision.Equal(to.Data.Raw, current) {
		written = "goes back to revision " + labelOf(to)
		if result, err = c.restore(ctx, v.set, content, u.dryRun); err != nil {
			return err
		}
	} else if result, err = c.untyped(ctx, v.set.Name); err != nil {
		return err
	}
	if u.output.Structured() {
		return s.printManifest(u.output, result)
	}
	if u.dryRun != "none" {
		written += " (" + u.dryRun + " dry run)"
	}
	_, err = fmt.Fprintf(s.Out, "sidecarset/%s %s\n", v.set.Name, written)
	return err
}

// untyped keeps the fields that this program does not know.
func (c *cluster) untyped(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(revision.OwnerKind))
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, set); err != nil {
		return nil, explain(err, "get SidecarSet "+name)
	}
	return set, nil
}

// restored is what undo writes: fields of spec, null where they are not set, and what
// people call this content. With the label of other content, the operator would give the
// restored revision that custom version, too.
type restored struct {
	fields        map[string]any
	customVersion string
}

func restoredFrom(found *appsv1.ControllerRevision, reference string) (restored, error) {
	fields, err := recorded(found.Data.Raw)
	if err != nil {
		return restored{}, fmt.Errorf("revision %s: %w", found.Name, err)
	}
	// A set that no webhook converted has its custom version here.
	fields["customVersion"] = nil
	return restored{fields, customVersionOf(found, reference)}, nil
}

// patch is a merge patch of the set as it was read.
func (r restored) patch(read *v1alpha1.SidecarSet) ([]byte, error) {
	labels := map[string]any{v1alpha1.CustomVersionLabel: nil}
	if r.customVersion != "" {
		labels[v1alpha1.CustomVersionLabel] = r.customVersion
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": read.ResourceVersion, "labels": labels}, "spec": r.fields,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the patch of SidecarSet %s: %w", read.Name, err)
	}
	return patch, nil
}

// applied is what the API server would make of a merge patch, before admission.
func applied(patch []byte, set *unstructured.Unstructured) error {
	before, err := set.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode SidecarSet %s: %w", set.GetName(), err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return fmt.Errorf("patch SidecarSet %s: %w", set.GetName(), err)
	}
	return set.UnmarshalJSON(after)
}

// restore replaces the fields, unless somebody has changed the set since it was read.
func (c *cluster) restore(ctx context.Context, read *v1alpha1.SidecarSet, to restored, dryRun string) (*unstructured.Unstructured, error) {
	set, err := c.untyped(ctx, read.Name)
	if err != nil {
		return nil, err
	}
	patch, err := to.patch(read)
	if err != nil {
		return nil, err
	}
	if dryRun == "client" {
		return set, applied(patch, set)
	}
	options := []client.PatchOption{client.FieldOwner(name)}
	if dryRun == "server" {
		options = append(options, client.DryRunAll)
	}
	err = c.live.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch), options...)
	if apierrors.IsConflict(err) {
		return nil, fmt.Errorf("SidecarSet %s was changed in the meantime: look at it, and try again", read.Name)
	}
	if err != nil {
		return nil, explain(err, "patch SidecarSet "+read.Name)
	}
	return set, nil
}

// printManifest leaves out what the API server and Outrigger write.
func (s *shared) printManifest(o output.Flag, set *unstructured.Unstructured) error {
	delete(set.Object, "status")
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
	return o.Write(s.Out, set.Object)
}
