package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/switchover"
)

// readSystemNamespace adds the facts of the system namespace to facts. If the user may not list Deployments,
// the check continues without the Deployments, and the report blocks the switchover.
func readSystemNamespace(ctx context.Context, reader client.Reader, system string, facts *switchover.Facts) error {
	revisions := &appsv1.ControllerRevisionList{}
	if err := reader.List(ctx, revisions, client.InNamespace(system)); err != nil {
		return fmt.Errorf("list the revisions in namespace %s: %w", system, err)
	}
	facts.Revisions = revisions.Items
	configuration := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: system, Name: v1alpha1.ConfigurationName}
	if err := reader.Get(ctx, key, configuration); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	facts.Whitelist = configuration.Data[v1alpha1.MetadataWhitelistKey]
	deployments := &appsv1.DeploymentList{}
	switch err := reader.List(ctx, deployments, client.InNamespace(system)); {
	case apierrors.IsForbidden(err):
		facts.Unread = append(facts.Unread, fmt.Sprintf("the Deployments in namespace %s, and so OpenKruise's manager and feature gates, for lack of permissions", system))
	case err != nil:
		return fmt.Errorf("list the Deployments in namespace %s: %w", system, err)
	}
	facts.Deployments = deployments.Items
	return nil
}
