package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/config/webhook"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/switchover"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/subcommand"
)

// podPage is the page size of lists of pods. Pagination limits the memory use in large clusters.
const podPage = 500

func newMigrate(shared *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Switch over from OpenKruise"}
	cmd.AddCommand(newMigrateCheck(shared))
	subcommand.Required(cmd)
	return cmd
}

func newMigrateCheck(shared *flags) *cobra.Command {
	var o output.Flag
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report differences before or after a switchover from OpenKruise",
		Long: "Reads SidecarSets, pods, revisions and webhook configurations, and writes nothing. The exit code is 0 if no finding " +
			"blocks the switchover. The exit code is 1 if a finding blocks the switchover, or if the check could not read an object. " +
			"docs/migration.md describes the steps.",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			report, err := checkCluster(cmd.Context(), options)
			if err != nil {
				return err
			}
			if o.Structured() {
				err = o.Write(cmd.OutOrStdout(), report)
			} else {
				// Line breaks in names and reasons must not add lines to the report.
				for i := range report.Findings {
					report.Findings[i].Message = view.OneLine(report.Findings[i].Message)
				}
				err = report.Write(cli.PrintableWriter(cmd.OutOrStdout()))
			}
			if err != nil {
				return err
			}
			if report.Blocked() > 0 {
				return fmt.Errorf("not ready to switch: %s", report.Verdict())
			}
			return nil
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	return cmd
}

func checkCluster(ctx context.Context, options kube.Options) (*switchover.Report, error) {
	reader, err := directClient(options)
	if err != nil {
		return nil, err
	}
	facts, err := readFacts(ctx, reader, options.SystemNamespace)
	if err != nil {
		return nil, err
	}
	check := switchover.New(facts)
	for next := ""; ; {
		page := &corev1.PodList{}
		if err := reader.List(ctx, page, client.Limit(podPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		check.Add(page.Items)
		if next = page.Continue; next == "" {
			return check.Report(), nil
		}
	}
}

// readFacts reads all objects of the check, except pods.
func readFacts(ctx context.Context, reader client.Reader, system string) (facts switchover.Facts, err error) {
	sets, namespaces := &v1alpha1.SidecarSetList{}, &corev1.NamespaceList{}
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfigurationList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	for _, list := range []client.ObjectList{sets, namespaces, mutating, validating} {
		if err := reader.List(ctx, list); err != nil {
			return facts, fmt.Errorf("list the objects of the check: %w", err)
		}
	}
	facts.Sets, facts.Mutating, facts.Validating = sets.Items, mutating.Items, validating.Items
	installed, err := podWebhook(facts.Mutating)
	if err != nil {
		return facts, err
	}
	facts.Webhook = match.NewWebhook(installed, system)
	facts.Namespaces = make(map[string]map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		facts.Namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	return facts, readSystemNamespace(ctx, reader, system, &facts)
}

// podWebhook returns the installed webhook of pods. Before the installation, podWebhook returns the webhook that
// config/webhook installs.
func podWebhook(installed []admissionregistrationv1.MutatingWebhookConfiguration) (*admissionregistrationv1.MutatingWebhook, error) {
	for i := range installed {
		if installed[i].Name == kube.WebhookConfigurationName {
			return kube.WebhookNamed(&installed[i], kube.PodWebhookName), nil
		}
	}
	var shipped admissionregistrationv1.MutatingWebhookConfiguration
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(webhook.Manifests), len(webhook.Manifests)).Decode(&shipped); err != nil {
		return nil, fmt.Errorf("read the webhook configuration of this program: %w", err)
	}
	return kube.WebhookNamed(&shipped, kube.PodWebhookName), nil
}
