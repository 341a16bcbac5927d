package cli

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func TestASuggestedCommandHasTheFlagsOfTheConnections(t *testing.T) {
	s, _, _ := fourRevisionsCluster(t)
	assert.Contains(t, s.shows("undo", "logs"), "\nnext: kubectl sidecarset status logs --watch\n")
	flags := []string{"--context=prod east", "--system-namespace=kruise-system", "--temporal-address=temporal:7233", "--temporal-tls=false", "--temporal-api-key=secret", "--token=secret", "--request-timeout=3s"}
	const repeated = "kubectl sidecarset --context='prod east' --system-namespace=kruise-system --temporal-address=temporal:7233 --temporal-tls=false "
	assert.Contains(t, s.shows(append(flags, "undo", "logs", "--to-revision=1")...), "\nnext: "+repeated+"status logs --watch\n")
	paused := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true })
	set := newTestCluster(t, paused).shows(append(flags, "set", "image", "logs", "agent=agent:v9")...)
	assert.Contains(t, set, "spec.updateStrategy.paused is true ("+repeated+"resume logs)\n")
}

func TestEachOutputHasTheFlagsOfTheConnections(t *testing.T) {
	var out, errOut bytes.Buffer
	s := &shared{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, config: genericclioptions.NewConfigFlags(true)}
	cmd := s.command()
	require.NoError(t, cmd.PersistentFlags().Set("context", "prod"))
	require.NoError(t, s.lines(t.Context(), "logs", output.Flag{}, func(_ context.Context, show func(*view.Rollout) error) error {
		return show(&view.Rollout{Name: "logs", Message: "see kubectl sidecarset check", Fault: view.Fault{Reason: "x", Message: "kubectl get pods"}})
	}))
	assert.Contains(t, out.String(), "see kubectl sidecarset --context=prod check; ")
	assert.Contains(t, errOut.String(), "kubectl --context=prod get pods")
	assert.Equal(t, "kubectl config get-contexts; kubectl --context=prod patch sidecarset a; written by kubectl-edit", s.suggested("kubectl config get-contexts; kubectl patch sidecarset a; written by kubectl-edit"))
	assert.Equal(t, "kubectl --context=prod -n kruise-system rollout restart deployment/outrigger-worker", s.suggested("kubectl -n kruise-system rollout restart deployment/outrigger-worker"))
	failed := s.suggestedError(degradedError{"logs", "x", "kubectl sidecarset undo logs"})
	require.ErrorContains(t, failed, "kubectl sidecarset --context=prod undo logs")
	assert.Equal(t, 2, ExitCode(failed))
	assert.NoError(t, s.suggestedError(nil))
}
