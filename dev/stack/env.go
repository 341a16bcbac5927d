package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

// writeEnv writes the addresses and process ids as shell variables to the env file. writeEnv replaces the
// file atomically.
func (s *supervisor) writeEnv() error {
	text := envLines(s.cluster.Kubeconfig, s.cluster.TemporalAddress, s.cluster.TemporalUI, s.cluster.Roles(), s.cluster.Processes())
	fresh, err := os.CreateTemp(string(s.at), "env-*")
	if err != nil {
		return fmt.Errorf("create the env file: %w", err)
	}
	defer func() { _ = fresh.Close() }()
	if _, err := fresh.WriteString(text); err != nil {
		return fmt.Errorf("write the env file: %w", err)
	}
	if err := os.Rename(fresh.Name(), s.at.envFile()); err != nil {
		return fmt.Errorf("replace the env file: %w", err)
	}
	return nil
}

func envLines(kubeconfig, temporal, ui string, roles []cluster.Role, processes []process.Status) string {
	var lines strings.Builder
	add := func(key, value string) { fmt.Fprintf(&lines, "%s=%s\n", key, shellWord(value)) }
	add("KUBECONFIG", kubeconfig)
	add("TEMPORAL_ADDRESS", temporal)
	add("TEMPORAL_UI", ui)
	for _, variable := range append(cluster.TemporalEnv(), "TEMPORAL_NAMESPACE="+cluster.TemporalNamespace) {
		key, value, _ := strings.Cut(variable, "=")
		add(key, value)
	}
	for _, role := range roles {
		if role.WebhookURL != "" {
			add("WEBHOOK_URL", role.WebhookURL)
		}
		add(envKey(role.Name)+"_METRICS", role.Metrics)
	}
	for _, p := range processes {
		if p.Running {
			add(envKey(p.Name)+"_PID", fmt.Sprint(p.PID))
		}
	}
	return lines.String()
}

func envKey(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// shellWord quotes a value only if a shell needs the quotes, because some readers of the env file do not
// support quotes.
func shellWord(value string) string {
	if !strings.ContainsAny(value, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
