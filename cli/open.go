package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/cli/browser"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func newOpen(s *shared) *cobra.Command {
	var ui string
	var printOnly bool
	cmd := s.ofSet(&cobra.Command{
		Use:   "open NAME",
		Short: "Open the newest run of a SidecarSet in the Temporal UI",
		Long:  "Print the URL of the newest run of a SidecarSet in the Temporal UI and, in a terminal with a browser, open it.",
		Example: `  kubectl sidecarset open logs
  kubectl sidecarset open logs --print --temporal-ui-url https://temporal.example.com   # without a browser`,
		Args: takes(1, aSidecarSet),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := s.uiAddress(cmd.Context(), args[0], cmp.Or(ui, os.Getenv("TEMPORAL_UI_URL")))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(s.Out, address); err != nil || printOnly || !s.terminal() {
				return err
			}
			browser.Stdout, browser.Stderr = s.ErrOut, s.ErrOut
			// The error is ignored, because the URL is also printed.
			_ = browser.OpenURL(address)
			return nil
		},
	})
	cmd.Flags().StringVar(&ui, "temporal-ui-url", "", "`URL` of the Temporal UI (TEMPORAL_UI_URL); empty: the URL of the run in status")
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the URL")
	return cmd
}

// uiAddress returns the URL of the newest run of a SidecarSet in the Temporal UI at base. If base is
// empty, uiAddress returns the URL that the operator wrote into status.
func (s *shared) uiAddress(ctx context.Context, name, base string) (string, error) {
	c, err := s.cluster()
	if err != nil {
		return "", err
	}
	set, err := c.set(ctx, name)
	if err != nil {
		return "", err
	}
	if base != "" {
		if !isWebAddress(base) {
			return "", fmt.Errorf("--temporal-ui-url %q is not a URL such as https://temporal.example.com (correct the flag or TEMPORAL_UI_URL)", base)
		}
		options, err := s.temporal.Options(envconfig.EnvLookupOS)
		return runURL(base, options.Namespace, set), err
	}
	switch rollout := set.Status.Rollout; {
	case rollout == nil:
		return "", fmt.Errorf("SidecarSet %s had no rollout yet", set.Name)
	case rollout.URL == "":
		return "", errors.New("the operator has no URL of a Temporal UI (its flag --temporal-ui-url): name one with --temporal-ui-url or TEMPORAL_UI_URL")
	case !isWebAddress(rollout.URL):
		return "", fmt.Errorf("status of SidecarSet %s has the URL %q, which is not the address of a web page: see who wrote the status, and name a URL with --temporal-ui-url", set.Name, rollout.URL)
	default:
		return rollout.URL, nil
	}
}

// isWebAddress reports whether a browser may open an address. Any client with the permission to write status can
// write an address that starts another program.
func isWebAddress(address string) bool {
	at, err := url.Parse(address)
	return err == nil && at.Host != "" && (at.Scheme == "http" || at.Scheme == "https")
}

// runURL returns the URL of the newest run of a SidecarSet in the Temporal UI at base.
func runURL(base, namespace string, set *v1alpha1.SidecarSet) string {
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(base, "/"),
		url.PathEscape(namespace), url.PathEscape(protocol.WorkflowID(set.Name, set.UID)))
}
