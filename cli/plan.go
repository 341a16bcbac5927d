package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/output"
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
			"keep their version and why. It is planned by the worker's own code; nothing is written. The exit code is 1 if\n" +
			"admission would refuse the set.",
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
			if err := s.print(p.output, model); err != nil {
				return err
			}
			if len(model.Refused) > 0 {
				return refusal(model.Refused)
			}
			return nil
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
	in := view.PlanInput{NamespaceLabels: c.namespaceLabels(ctx)}
	if p.file != "" {
		if in.Set, in.Unknown, err = s.readSet(p.file); err != nil {
			return nil, err
		}
		in.Stored, err = c.set(ctx, in.Set.Name)
		if in.New = errors.Is(err, errNoSuchSet); in.New {
			err = nil
		}
	} else if in.Stored, err = c.set(ctx, args[0]); err == nil {
		in.Set = in.Stored.DeepCopy()
		err = setImages(in.Set, p.images)
	}
	if err != nil {
		return nil, err
	}
	if !in.New {
		// The API server fills in fields that the file leaves out.
		in.Set.Status, in.Set.UID, in.Set.ResourceVersion = in.Stored.Status, in.Stored.UID, in.Stored.ResourceVersion
		if in.Pace, err = s.pace(ctx, in.Stored); err != nil {
			in.PaceUnknown = err.Error()
		}
	}
	if err := revision.Complete(in.Set, in.Stored); err != nil {
		return nil, err
	}
	if in.Refused, err = c.refusals(ctx, in.Set, in.Stored); err != nil {
		return nil, err
	}
	model, err := s.planPods(ctx, c, in)
	if err != nil && len(in.Refused) > 0 {
		// Nobody can plan for it, either.
		return nil, refusal(in.Refused)
	}
	return model, err
}

// refusal ends the command for a set that admission does not take.
func refusal(causes []string) error {
	return fmt.Errorf("admission refuses this SidecarSet: %s", strings.Join(causes, "; "))
}

// planPods reads the pods of a set, and plans for them.
func (s *shared) planPods(ctx context.Context, c *cluster, in view.PlanInput) (*view.Plan, error) {
	var err error
	if in.Pods, err = c.pods(ctx, in.Set, ""); err != nil {
		return nil, err
	}
	if in.New {
		missing, err := view.Missing(in.Set, in.Pods, in.NamespaceLabels, c.systemNamespace, s.webhook(ctx, c))
		if err != nil {
			return nil, err
		}
		in.Missing = len(missing)
	} else {
		// Without them the fields that are to blame are not known.
		in.Revisions, _ = c.revisions(ctx, in.Stored)
	}
	return view.NewPlan(in)
}

// refusals are what admission would say, but for what it asks Kubernetes and the whitelist.
func (c *cluster) refusals(ctx context.Context, wanted, stored *v1alpha1.SidecarSet) ([]string, error) {
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
	var refused []string
	for _, cause := range ratchet.Rejected() {
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
	object, err := onlyDocument(data)
	if err != nil {
		return nil, nil, fmt.Errorf("read the SidecarSet in %s: %w", file, err)
	}
	if object["kind"] != "SidecarSet" {
		return nil, nil, fmt.Errorf("%s: the document is no SidecarSet, but %q", file, object["kind"])
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
	if set.Name == "" {
		return nil, nil, fmt.Errorf("%s: the SidecarSet has no metadata.name", file)
	}
	for _, one := range strict {
		unknown = append(unknown, one.Error())
	}
	return set, unknown, nil
}

// onlyDocument refuses several: a plan of the first alone would pass for one of all.
func onlyDocument(data []byte) (object map[string]any, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return object, nil
		}
		if err != nil {
			return nil, err
		}
		var next map[string]any
		if err := yaml.Unmarshal(document, &next); err != nil {
			return nil, err
		}
		if len(next) > 0 && object != nil {
			return nil, errors.New("it holds several documents: give one SidecarSet")
		}
		if len(next) > 0 {
			object = next
		}
	}
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
