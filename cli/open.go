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

	"github.com/outrigger/outrigger/api/protocol"
)

func newOpen(s *shared) *cobra.Command {
	var ui string
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "open NAME",
		Short: "Open the newest run of a set in the Temporal UI",
		Long:  "Print the URL of the newest run of a set in the Temporal UI and, in a terminal with a browser, open it.",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := s.uiAddress(cmd.Context(), args[0], cmp.Or(ui, os.Getenv("TEMPORAL_UI_URL")))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(s.Out, address); err != nil || printOnly || !s.terminal() {
				return err
			}
			browser.Stdout, browser.Stderr = s.ErrOut, s.ErrOut
			if err := browser.OpenURL(address); err != nil {
				// The URL is printed; nobody needs more on a machine without a browser.
				return nil //nolint:nilerr // see above
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&ui, "temporal-ui-url", "", "`URL` of the Temporal UI (TEMPORAL_UI_URL); empty: the one that the operator knows")
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the URL")
	return cmd
}

// uiAddress is where a Temporal UI shows the newest run of a set; base is empty for the
// UI that the operator knows.
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
		r, err := s.connect()
		if err != nil {
			return "", err
		}
		r.Close()
		return fmt.Sprintf("%s/namespaces/%s/workflows/%s", strings.TrimSuffix(base, "/"),
			url.PathEscape(r.options.Namespace), url.PathEscape(protocol.WorkflowID(set.Name, set.UID))), nil
	}
	if set.Status.Rollout == nil {
		return "", fmt.Errorf("SidecarSet %s had no rollout yet", set.Name)
	}
	if set.Status.Rollout.URL == "" {
		return "", errors.New("the operator knows no Temporal UI (its flag --temporal-ui-url): name one with --temporal-ui-url or TEMPORAL_UI_URL")
	}
	return set.Status.Rollout.URL, nil
}
