package cli

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outrigger/outrigger/cli/view"
)

var (
	// suggestion matches the beginning of each command that outputs and errors suggest.
	suggestion = regexp.MustCompile(`\bkubectl (-n \S+ )?(sidecarset|delete|describe|edit|get|label|logs|patch|replace|rollout|scale) `)
	// plain matches a value that a shell does not change.
	plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)
)

// suggested returns text in which each command has the flags of the connections that the user set, so that the
// command reaches the same cluster and the same Temporal.
func (s *shared) suggested(text string) string {
	kubectl, plugin := s.connectionFlags()
	if plugin == "" {
		return text
	}
	return suggestion.ReplaceAllStringFunc(text, func(command string) string {
		if command == "kubectl sidecarset " {
			return command + plugin
		}
		return "kubectl " + kubectl + strings.TrimPrefix(command, "kubectl ")
	})
}

// suggestedError returns err with the text that suggested returns.
func (s *shared) suggestedError(err error) error {
	if err == nil {
		return nil
	}
	text := s.suggested(err.Error())
	if text == err.Error() {
		return err
	}
	return &explainedError{text, err}
}

// suggestsInErrors lets the commands in the errors of cmd, and of the subcommands of cmd, have the flags of the
// connections.
func (s *shared) suggestsInErrors(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.suggestedError(run(cmd, args)) }
	}
	for _, child := range cmd.Commands() {
		s.suggestsInErrors(child)
	}
}

// textOf returns the text of a model. The texts of contents and of histories, such as change causes, stay as they
// are. The reason of a pause or a freeze is a part of other texts, so a command in such a reason also gets the flags.
func (s *shared) textOf(m model, style view.Style) string {
	text := m.Text(style)
	switch m.(type) {
	case contentDiff, *view.History:
		return text
	}
	return s.suggested(text)
}

// connectionFlags returns the flags that select the API server, and the flags that also select Temporal and the
// system namespace. Each flag ends with a space. Flags whose values are secrets are omitted.
func (s *shared) connectionFlags() (kubectl, plugin string) {
	if s.flags == nil {
		return "", ""
	}
	ofKubectl := []string{"kubeconfig", "context", "cluster", "user", "server", "certificate-authority", "client-certificate", "client-key", "tls-server-name", "insecure-skip-tls-verify", "as", "as-uid"}
	secret := []string{"temporal-api-key", "temporal-grpc-meta"}
	s.flags.VisitAll(func(f *pflag.Flag) {
		value := s.valueOf(f)
		if !f.Changed || value == "" {
			return
		}
		if !plain.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		flag := "--" + f.Name + "=" + value + " "
		switch {
		case slices.Contains(ofKubectl, f.Name):
			kubectl += flag
			plugin += flag
		case f.Name == "system-namespace", strings.HasPrefix(f.Name, "temporal-") && !slices.Contains(secret, f.Name):
			plugin += flag
		}
	})
	return kubectl, plugin
}

// valueOf returns the value of a flag. The flags of TLS do not return their values themselves.
func (s *shared) valueOf(f *pflag.Flag) string {
	tls := map[string]*bool{"temporal-tls": s.temporal.TLS, "temporal-tls-disable-host-verification": s.temporal.DisableHostVerification}
	if value := tls[f.Name]; value != nil {
		return strconv.FormatBool(*value)
	}
	return f.Value.String()
}
