package view

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// UndoCommand returns the command that restores the newest good revision with other content than the
// SidecarSet. sorted contains the revisions, the oldest first. Without the flag --to-revision, the command undo
// restores the newest other content, which may be bad, too. UndoCommand omits the flag if undo restores the good
// revision without the flag, or if no good revision is known.
func UndoCommand(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision) string {
	command := "kubectl sidecarset undo " + set.Name
	current, err := revision.Content(&set.Spec)
	if err != nil {
		return command
	}
	target := revision.NewestOther(sorted, current)
	for _, good := range set.Status.GoodRevisions {
		recorded := revision.Named(sorted, good.Revision)
		switch {
		case good.ResourceVersion == "" || recorded == nil || revision.Equal(recorded.Data.Raw, current):
		case recorded == target:
			return command
		default:
			return command + " --to-revision " + recorded.Name
		}
	}
	return command
}
