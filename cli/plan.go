package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubejson "sigs.k8s.io/json"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/output"
)

func newPlan(s *shared) *cobra.Command {
	var file string
	var images []string
	cmd := s.ofSet(&cobra.Command{
		Use:   "plan (-f FILE | NAME [--image CONTAINER=IMAGE]...)",
		Short: "Show the effect of a rollout, and write nothing",
		Long: "Show the effect of a rollout on the present pods: which pods are upgraded, in which order and batches, and which\n" +
			"pods keep their version, with the reason. The plan uses the code of the worker, and writes nothing. The exit\n" +
			"code is 1 if admission would reject the SidecarSet.",
		Example: `  kubectl sidecarset plan logs --image agent=agent:v2
  kubectl sidecarset plan logs --image agent=agent:v2 -o wide   # every batch and pod
  kubectl sidecarset plan -f set.yaml                           # a changed or new SidecarSet`,
		Args: takes(1),
	})
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with the changed SidecarSet; -: standard input")
	cmd.Flags().StringArrayVar(&images, "image", nil, "`CONTAINER=IMAGE` to plan for; may be repeated")
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		switch {
		case len(args) == 0 && file == "":
			return nil, errors.New("plan: name a SidecarSet with the new image, such as logs --image agent=agent:v2, or give its changed manifest with -f")
		case file != "" && (len(args) > 0 || len(images) > 0):
			return nil, errors.New("plan: give either the NAME of a SidecarSet, with --image, or a file with -f")
		}
		in := &view.PlanInput{}
		var err error
		if file != "" {
			err = s.readFile(ctx, c, file, in)
		} else if in.Stored, err = c.set(ctx, args[0]); err == nil {
			in.Set = in.Stored.DeepCopy()
			if _, err = setImages(in.Set, images); err != nil {
				err = fmt.Errorf("--image %w", err)
			}
		}
		if err != nil {
			return nil, err
		}
		return s.plan(ctx, c, in)
	}, output.Wide, output.JSON, output.YAML)
}

// plan returns the plan for in. If admission would reject the SidecarSet, plan also returns an error.
func (s *shared) plan(ctx context.Context, c *cluster, in *view.PlanInput) (model, error) {
	if err := revision.Complete(in.Set, in.Stored); err != nil {
		return nil, err
	}
	var rejection, err error
	if in.Rejected, err = c.rejections(ctx, in.Set, in.Stored); err != nil {
		return nil, err
	}
	if len(in.Rejected) > 0 {
		rejection = fmt.Errorf("admission rejects this SidecarSet: %s", strings.Join(in.Rejected, "; "))
	}
	plan, err := s.planPods(ctx, c, in)
	switch {
	case err == nil:
		return plan, rejection
	case rejection != nil:
		return nil, rejection // The rejection is the reason why there is no plan.
	}
	return nil, err
}

// planPods reads the pods of a SidecarSet, and returns the plan for these pods.
func (s *shared) planPods(ctx context.Context, c *cluster, in *view.PlanInput) (*view.Plan, error) {
	read, err := c.input(ctx, in.Set, "")
	if err != nil {
		return nil, err
	}
	in.Input = *read
	if in.Policies, err = c.policies(ctx); err != nil {
		in.PoliciesUnknown = err.Error()
	}
	in.Domains = c.domains(ctx)
	if in.Stored == nil {
		in.Webhook = s.webhook(ctx, c)
		return view.NewPlan(in)
	}
	// If the revisions cannot be read, the plan omits the changed fields of pods that are not upgradable.
	in.Revisions, _ = c.revisions(ctx, in.Stored)
	if in.Pace, err = s.pace(ctx, in.Stored); err != nil {
		in.PaceUnknown = err.Error()
	}
	return view.NewPlan(in)
}

// rejections returns the reasons why admission would reject a SidecarSet. rejections checks neither the rules
// of Kubernetes nor the whitelist of pod metadata.
func (c *cluster) rejections(ctx context.Context, wanted, stored *v1alpha1.SidecarSet) ([]string, error) {
	ratchet := validation.NewRatchet(wanted, stored)
	if ratchet.NeedsOthers() {
		others, err := c.sets(ctx)
		if err != nil {
			return nil, err
		}
		var pinned []appsv1.ControllerRevision
		for _, name := range ratchet.PinnedAmong(others) {
			revisions, err := c.listRevisions(ctx, name)
			if err != nil {
				return nil, err
			}
			pinned = append(pinned, revisions...)
		}
		ratchet.Conflicts(others, pinned)
	}
	if ratchet.NeedsRevisions() {
		listed, err := c.listRevisions(ctx, wanted.Name)
		if err != nil {
			return nil, err
		}
		ratchet.Pinned(listed)
	}
	var rejections []string
	for _, cause := range ratchet.Rejected() {
		rejections = append(rejections, cause.Field+": "+cause.Message)
	}
	return rejections, nil
}

// readFile reads a SidecarSet in any API version from a file, and reads the stored SidecarSet.
func (s *shared) readFile(ctx context.Context, c *cluster, file string, in *view.PlanInput) error {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(s.In)
	} else {
		data, err = os.ReadFile(file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no file %s: give the manifest of a SidecarSet with -f; -f - reads it from standard input", file)
	}
	if err != nil {
		return fmt.Errorf("read the SidecarSet: %w", err)
	}
	if in.Set, in.Unknown, err = parseSet(data); err != nil {
		return fmt.Errorf("read the SidecarSet in %s: %w", file, err)
	}
	in.Stored, err = c.set(ctx, in.Set.Name)
	if errors.Is(err, errNoSuchSet) {
		return nil
	}
	if err == nil {
		// The file omits fields that the API server sets. The stage in status belongs to the generation.
		in.Set.Status, in.Set.UID, in.Set.ResourceVersion = in.Stored.Status, in.Stored.UID, in.Stored.ResourceVersion
		in.Set.Generation = in.Stored.Generation
	}
	return err
}

// parseSet decodes a SidecarSet, and returns the unknown fields. parseSet rejects a file with several
// documents, because a user could mistake a plan of the first document for a plan of all documents.
func parseSet(data []byte) (set *v1alpha1.SidecarSet, unknown []string, err error) {
	var object map[string]any
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1); ; {
		var next map[string]any
		err := documents.Decode(&next)
		switch {
		case errors.Is(err, io.EOF):
			return convertSet(object)
		case err != nil:
			return nil, nil, err
		case len(next) > 0 && object != nil:
			return nil, nil, errors.New("it holds several documents: give one SidecarSet")
		case len(next) > 0:
			object = next
		}
	}
}

// convertSet converts a decoded object to a SidecarSet, and returns the unknown fields.
func convertSet(object map[string]any) (*v1alpha1.SidecarSet, []string, error) {
	if object == nil {
		return nil, nil, errors.New("the document is empty: give the manifest of a SidecarSet")
	}
	if object["kind"] != "SidecarSet" {
		return nil, nil, fmt.Errorf("the document is not a SidecarSet, but %q: use the manifest of a SidecarSet", object["kind"])
	}
	if err := conversion.Convert(object, v1alpha1.GroupVersion.String()); err != nil {
		return nil, nil, err
	}
	converted, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	set := &v1alpha1.SidecarSet{}
	strict, err := kubejson.UnmarshalStrict(converted, set)
	if err == nil && set.Name == "" {
		err = errors.New("the SidecarSet has no metadata.name")
	}
	var unknown []string
	for _, one := range strict {
		unknown = append(unknown, one.Error())
	}
	return set, unknown, err
}

// pace returns the pace of the newest completed run that upgraded pods. If none of the recent runs has upgraded
// pods, pace returns nil.
func (s *shared) pace(ctx context.Context, set *v1alpha1.SidecarSet) (*view.Pace, error) {
	r, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	const recent = 5
	rows, err := r.list(ctx, set, recent)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Status != enums.WORKFLOW_EXECUTION_STATUS_COMPLETED.String() || row.Ended == nil {
			continue
		}
		short, cancel := context.WithTimeout(ctx, readTimeout)
		var result protocol.RolloutResult
		err := r.GetWorkflow(short, protocol.WorkflowID(set.Name, set.UID), row.RunID).Get(short, &result)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("read the result of run %s: %w; %s", row.RunID, err, needsKeys)
		}
		if result.Upgraded > 0 {
			return &view.Pace{Pods: result.Upgraded, Took: row.Ended.Sub(row.Started)}, nil
		}
	}
	return nil, nil
}
