package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/jsonpatch"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/subcommand"
)

func newSet(s *shared) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the images of a SidecarSet",
	}
	cmd.AddCommand(newSetImage(s))
	subcommand.Required(cmd)
	return cmd
}

func newSetImage(s *shared) *cobra.Command {
	var reason, dryRun string
	cmd := s.ofSet(&cobra.Command{
		Use:   "image NAME CONTAINER=IMAGE...",
		Short: "Set images of containers and init containers, and so start a rollout",
		Long: "Set images of containers and init containers of a SidecarSet, and so start a rollout. Only the images and the\n" +
			"reason are patched, and only if the containers are still at the same places of the spec.",
		Example: `  kubectl sidecarset set image logs agent=agent:v2
  kubectl sidecarset set image logs agent=agent:v2 --reason "fixes lost lines"   # history shows the reason
  kubectl sidecarset set image logs agent=agent:v2 --dry-run=server              # have admission check it`,
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && strings.Contains(args[0], "=") {
			return fmt.Errorf("set image: name %s before %q (kubectl sidecarset set image NAME CONTAINER=IMAGE...)", aSidecarSet, args[0])
		}
		return takes(math.MaxInt, aSidecarSet, "a container and its image")(cmd, args)
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the annotation "+v1alpha1.ChangeCauseAnnotation+"; without it, the annotation is removed")
	addDryRun(cmd, &dryRun)
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if err := checkDryRun(dryRun); err != nil {
			return nil, err
		}
		return s.setImage(ctx, c, args[0], args[1:], reason, dryRun)
	}, output.JSON, output.YAML)
}

func addDryRun(cmd *cobra.Command, dryRun *string) {
	cmd.Flags().StringVar(dryRun, "dry-run", "none", "none; client: write nothing; server: have the API server try it")
}

func checkDryRun(dryRun string) error {
	if !slices.Contains([]string{"none", "client", "server"}, dryRun) {
		return fmt.Errorf("--dry-run %q: use none, client or server", dryRun)
	}
	return nil
}

func (s *shared) setImage(ctx context.Context, c *cluster, of string, images []string, reason, dryRun string) (model, error) {
	set, err := c.set(ctx, of)
	if err != nil {
		return nil, err
	}
	s.showPause(ctx, set)
	next := nextOfRollout(set)
	// The JSON patch must apply to the stored SidecarSet. set also has defaults that the stored SidecarSet
	// lacks if the webhook was not called for the last write.
	stored := &v1alpha1.SidecarSet{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(set), stored); err != nil {
		return nil, explain(err, "get SidecarSet "+set.Name)
	}
	set = stored
	changes, err := setImages(set, images)
	if err != nil {
		return nil, err
	}
	done := imagesSet{Name: set.Name, Changed: changes, DryRun: dryRun != "none", next: next}
	if done.DryRun {
		done.suffix, done.next = " ("+dryRun+" dry run)", []string{"next: the same command without --dry-run"}
	}
	if len(changes) == 0 || dryRun == "client" {
		return done, nil
	}
	patch, err := json.Marshal(imagePatch(set, changes, reason))
	if err != nil {
		return nil, err
	}
	options := []client.PatchOption{client.FieldOwner(name)}
	if done.DryRun {
		options = append(options, client.DryRunAll)
	}
	err = c.live.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch), options...)
	if patchDoesNotApply(err) {
		return nil, fmt.Errorf("SidecarSet %s was changed in the meantime: check it, and try again", set.Name)
	}
	if err != nil {
		return nil, explain(err, "patch SidecarSet "+set.Name)
	}
	return done, nil
}

// showPause replaces the pause in the status with the pause of the open run, because the operator records the
// start and the end of a pause with a delay. If the run does not respond, showPause keeps the pause in the
// status.
func (s *shared) showPause(ctx context.Context, set *v1alpha1.SidecarSet) {
	status := set.Status.Rollout
	if status == nil || status.Pause == nil && !view.Unfinished(set) {
		return
	}
	run := s.readRun(ctx, set).Status
	if run == nil {
		return
	}
	if status.Pause = nil; run.Pause != nil {
		status.Pause = &v1alpha1.RolloutPause{By: run.Pause.By, Reason: run.Pause.Reason}
	}
}

// patchDoesNotApply reports whether an operation of a JSON patch failed. For this failure, the API server
// returns only a general message. A rejection by validation or by a webhook contains the cause.
func patchDoesNotApply(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Message == "the server rejected our request due to an error in our request"
}

// imageChange is the new image of a container.
type imageChange struct {
	Container string `json:"container"`
	From      string `json:"from"`
	To        string `json:"to"`
	// path is the JSON pointer to the container in a SidecarSet.
	path string
}

// setImages sets images, each in the form CONTAINER=IMAGE, and returns the changes.
func setImages(set *v1alpha1.SidecarSet, images []string) ([]imageChange, error) {
	changes, given := []imageChange{}, map[string]bool{}
	for _, pair := range images {
		container, image, ok := strings.Cut(pair, "=")
		switch {
		case ok && container != "" && image == "":
			return nil, fmt.Errorf("%q: the image is empty: use CONTAINER=IMAGE", pair)
		case !ok || container == "":
			return nil, fmt.Errorf("%q: use CONTAINER=IMAGE", pair)
		}
		if given[container] {
			return nil, fmt.Errorf("%q: container %s is given twice: give one image for each container", pair, container)
		}
		given[container] = true
		if err := checkImage(image); err != nil {
			return nil, fmt.Errorf("%q: %w", pair, err)
		}
		var known []string
		found := false
		for field, list := range map[string][]v1alpha1.SidecarContainer{"containers": set.Spec.Containers, "initContainers": set.Spec.InitContainers} {
			for i := range list {
				known = append(known, list[i].Name)
				if list[i].Name != container {
					continue
				}
				found = true
				if list[i].Image != image {
					changes = append(changes, imageChange{container, list[i].Image, image, fmt.Sprintf("/spec/%s/%d", field, i)})
					list[i].Image = image
				}
			}
		}
		if !found {
			slices.Sort(known)
			return nil, fmt.Errorf("%q: SidecarSet %s has no container %q; it has %s", pair, set.Name, container, strings.Join(known, ", "))
		}
	}
	return changes, nil
}

// checkImage returns an error for common mistakes in an image reference, because admission accepts every image
// reference. checkImage does not detect all mistakes.
func checkImage(image string) error {
	if strings.ContainsFunc(image, unicode.IsSpace) {
		return errors.New("the image contains whitespace, so no node can pull it: remove the whitespace; for several containers, give CONTAINER=IMAGE several times")
	}
	if scheme, rest, ok := strings.Cut(image, "://"); ok {
		return fmt.Errorf("the image begins with %s://, so no node can pull it: use %s", scheme, rest)
	}
	repository, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest && !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,}$`).MatchString(digest) {
		return fmt.Errorf("the digest %q of the image is invalid, so no node can pull it: use sha256: and 64 hexadecimal digits", digest)
	}
	if tag := strings.LastIndex(repository, ":"); tag > strings.LastIndex(repository, "/") {
		if name := repository[tag+1:]; !regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`).MatchString(name) {
			return fmt.Errorf("the tag %q of the image is invalid, so no node can pull it: a tag has letters, digits, _, . and -, such as v2", name)
		}
		repository = repository[:tag]
	}
	// The host of a registry may contain upper-case letters. The remaining name must not contain upper-case
	// letters.
	if first, rest, ok := strings.Cut(repository, "/"); ok && (strings.ContainsAny(first, ".:") || first != strings.ToLower(first)) {
		repository = rest
	}
	switch {
	case strings.ContainsFunc(repository, unicode.IsUpper):
		return fmt.Errorf("the repository %s of the image contains upper-case letters, so no node can pull it: use %s", repository, strings.ToLower(repository))
	case slices.Contains(strings.Split(repository, "/"), ""):
		return errors.New("the image has an empty name, so no node can pull it: use an image such as registry.example.com/agent:v2")
	}
	return nil
}

// imagePatch returns a patch that sets the images of changes. The patch fails if a container is at another
// index of the list of containers. If reason is empty, the patch removes the reason of the previous content.
func imagePatch(set *v1alpha1.SidecarSet, changes []imageChange, reason string) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for _, change := range changes {
		patch = append(patch, jsonpatch.Operation{Op: "test", Path: change.path + "/name", Value: change.Container}, jsonpatch.Add(change.path+"/image", change.To))
	}
	_, caused := set.Annotations[v1alpha1.ChangeCauseAnnotation]
	switch {
	case reason != "":
		patch = append(patch, jsonpatch.SetKeys("/metadata/annotations", set.Annotations, map[string]string{v1alpha1.ChangeCauseAnnotation: reason})...)
	case caused:
		patch = append(patch, jsonpatch.Operation{Op: "remove", Path: jsonpatch.Pointer("metadata", "annotations", v1alpha1.ChangeCauseAnnotation)})
	}
	return patch
}

// imagesSet is the output of the command set image.
type imagesSet struct {
	Name    string        `json:"name"`
	Changed []imageChange `json:"changed"`
	DryRun  bool          `json:"dryRun,omitempty"`
	suffix  string
	next    []string
}

func (s imagesSet) Text(view.Style) string {
	if len(s.Changed) == 0 {
		return "sidecarset/" + s.Name + " image unchanged" + s.suffix + "\n"
	}
	return "sidecarset/" + s.Name + " image updated" + s.suffix + "\n" + strings.Join(s.next, "\n") + "\n"
}
