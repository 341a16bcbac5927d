package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/output"
	"github.com/outrigger/outrigger/internal/revision"
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
		Long: "Write an earlier revision back, as a new generation: containers, init containers, volumes, imagePullSecrets and\n" +
			"patchPodMetadata. Selectors and strategies stay. With --dry-run=client -o yaml it prints the manifest instead, for\n" +
			"a repository that is the source of truth.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			if u.dryRun != "none" && u.dryRun != "client" && u.dryRun != "server" {
				return fmt.Errorf("--dry-run %q: use none, client or server", u.dryRun)
			}
			return s.undo(cmd.Context(), args[0], u)
		},
	}
	u.output.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().StringVar(&u.to, "to-revision", "", "number or name of the `revision`; empty: the one before")
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
	fields, err := recorded(to.Data.Raw)
	if err != nil {
		return fmt.Errorf("revision %s: %w", to.Name, err)
	}
	current, err := v.current()
	if err != nil {
		return err
	}
	written := "is at revision " + labelOf(to) + " already"
	var result *unstructured.Unstructured
	if !revision.Equal(to.Data.Raw, current) {
		written = "goes back to revision " + labelOf(to)
		if result, err = c.restore(ctx, v.set, fields, u.dryRun); err != nil {
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

// restore replaces the fields, unless somebody has changed the set since it was read.
func (c *cluster) restore(ctx context.Context, read *v1alpha1.SidecarSet, fields map[string]any, dryRun string) (*unstructured.Unstructured, error) {
	set, err := c.untyped(ctx, read.Name)
	if err != nil {
		return nil, err
	}
	if dryRun == "client" {
		return set, setFields(set, fields)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": read.ResourceVersion}, "spec": fields})
	if err != nil {
		return nil, fmt.Errorf("encode the patch of SidecarSet %s: %w", read.Name, err)
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

func setFields(set *unstructured.Unstructured, fields map[string]any) error {
	for key, value := range fields {
		if value == nil {
			unstructured.RemoveNestedField(set.Object, "spec", key)
			continue
		}
		if err := unstructured.SetNestedField(set.Object, value, "spec", key); err != nil {
			return fmt.Errorf("set spec.%s: %w", key, err)
		}
	}
	return nil
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
