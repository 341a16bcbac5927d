package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/output"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/validation"
)

// plan are the flags of the command.
type plan struct {
	output output.Flag
	file   string
	images []string
}

func newPlan(s *shared) *cobra.Command {
	var p plan
	cmd := &cobra.Command{
		Use:   "plan (-f FILE | NAME [--image CONTAINER=IMAGE]...)",
		Short: "Show what a rollout would do, and write nothing",
		Long: "Show what a rollout would do to the pods as they are: which are upgraded, in which order and batches, and which\n" +
			"keep their version and why. It is planned by the worker's own code; nothing is written.",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: s.completeSets,
		Example: "  kubectl sidecarset plan -f set.yaml\n  kubectl sidecarset plan logs --image agent=agent:v2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (p.file != "") || p.file != "" && len(p.images) > 0 {
				return errors.New("give either the NAME of a set, with --image, or a file with -f")
			}
			model, err := s.plan(cmd.Context(), args, p)
			if err != nil {
				return err
			}
			return s.print(p.output, model)
		},
	}
	p.output.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.Flags().StringVarP(&p.file, "filename", "f", "", "`file` with the SidecarSet as it would be; -: standard input")
	cmd.Flags().StringArrayVar(&p.images, "image", nil, "`CONTAINER=IMAGE` to plan for; may be repeated")
	return cmd
}

func (s *shared) plan(ctx context.Context, args []string, p plan) (*view.Plan, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	var stored, wanted *v1alpha1.SidecarSet
	var unknown []string
	if p.file != "" {
		if wanted, unknown, err = s.readSet(p.file); err != nil {
			return nil, err
		}
		if stored, err = c.set(ctx, wanted.Name); errors.Is(err, errNoSuchSet) {
			return c.planNew(ctx, wanted, unknown)
		}
	} else if stored, err = c.set(ctx, args[0]); err == nil {
		wanted = stored.DeepCopy()
		err = setImages(wanted, p.images)
	}
	if err != nil {
		return nil, err
	}
	// What the file leaves out is the API server's.
	wanted.Status, wanted.UID, wanted.ResourceVersion = stored.Status, stored.UID, stored.ResourceVersion
	if err := validation.Complete(wanted, stored); err != nil {
		return nil, err
	}
	in := view.PlanInput{Set: wanted, Stored: stored, NamespaceLabels: c.namespaceLabels(ctx), Unknown: unknown}
	if in.Pace, err = s.pace(ctx, stored); err != nil {
		in.PaceUnknown = err.Error()
	}
	if in.Refused, err = c.refusals(ctx, wanted, stored); err != nil {
		return nil, err
	}
	if in.Pods, err = c.pods(ctx, wanted); err != nil {
		return nil, err
	}
	// Without them the fields that are to blame are not known.
	in.Revisions, _ = c.revisions(ctx, stored)
	return view.NewPlan(in)
}

// planNew is for a set that is not stored yet.
func (c *cluster) planNew(ctx context.Context, wanted *v1alpha1.SidecarSet, unknown []string) (*view.Plan, error) {
	if err := validation.Complete(wanted, nil); err != nil {
		return nil, err
	}
	refused, err := c.refusals(ctx, wanted, nil)
	if err != nil {
		return nil, err
	}
	pods, err := c.pods(ctx, wanted)
	if err != nil {
		return nil, err
	}
	labels := c.namespaceLabels(ctx)
	missing, err := view.Missing(wanted, pods, labels, c.systemNamespace)
	if err != nil {
		return nil, err
	}
	return view.NewPlan(view.PlanInput{Set: wanted, Pods: pods, NamespaceLabels: labels, Refused: refused, New: true, Missing: len(missing), Unknown: unknown})
}

// refusals are what admission would say, but for what it asks Kubernetes and the whitelist.
func (c *cluster) refusals(ctx context.Context, wanted, stored *v1alpha1.SidecarSet) ([]string, error) {
	ratchet := validation.NewRatchet(wanted, stored)
	if ratchet.NeedsOthers() {
		others, err := c.sets(ctx)
		if err != nil {
			return nil, err
		}
		ratchet.Conflicts(others)
	}
	var refused []string
	for _, cause := range ratchet.Refused() {
		refused = append(refused, cause.Field+": "+cause.Message)
	}
	return refused, nil
}

// readSet reads either version of a SidecarSet. unknown are its unknown fields.
func (s *shared) readSet(file string) (set *v1alpha1.SidecarSet, unknown []string, err error) {
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(s.In)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the SidecarSet: %w", err)
	}
	object := map[string]any{}
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, nil, fmt.Errorf("read the SidecarSet in %s: %w", file, err)
	}
	if object["kind"] != "SidecarSet" {
		return nil, nil, fmt.Errorf("%s: the first document is no SidecarSet, but %q", file, object["kind"])
	}
	if err := conversion.Convert(object, v1alpha1.GroupVersion.String()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	converted, err := json.Marshal(object)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	set = &v1alpha1.SidecarSet{}
	strict, err := kubejson.UnmarshalStrict(converted, set)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, one := range strict {
		unknown = append(unknown, one.Error())
	}
	return set, unknown, nil
}

func setImages(set *v1alpha1.SidecarSet, images []string) error {
	for _, pair := range images {
		container, image, ok := strings.Cut(pair, "=")
		if !ok || image == "" {
			return fmt.Errorf("--image %q: use CONTAINER=IMAGE", pair)
		}
		var known []string
		found := false
		for _, list := range [][]v1alpha1.SidecarContainer{set.Spec.Containers, set.Spec.InitContainers} {
			for i := range list {
				known = append(known, list[i].Name)
				if list[i].Name == container {
					list[i].Image, found = image, true
				}
			}
		}
		if !found {
			return fmt.Errorf("--image: SidecarSet %s has no container %q; it has %s", set.Name, container, strings.Join(known, ", "))
		}
	}
	return nil
}

// pace is that of the newest run that completed and upgraded pods; nil if there is none.
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
	completed := enums.WORKFLOW_EXECUTION_STATUS_COMPLETED.String()
	for _, row := range rows {
		if row.Status != completed || row.Ended == nil {
			continue
		}
		short, cancel := context.WithTimeout(ctx, lookTimeout)
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
