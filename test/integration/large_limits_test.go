//go:build large

package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// The test kills each process in turn, and deletes pods of several zones.
func TestLargeRolloutZoneByZone(t *testing.T) {
	const owners = 100
	s := newStagedScenario(t, 0, intstr.FromString("100%"))
	s.labelZones()
	s.patchPolicy(`{"maxUnavailablePerOwner":1,"domains":{"topologyKey":"` + zoneLabel + `"},"respectPodDisruptionBudgets":true}`)
	s.createOwners(owners)
	for i := range owners {
		s.protect(fmt.Sprint("app-", i))
	}
	s.upgradeTo("side:v2")
	killed := []string{"worker-1", "operator", "worker-2", "webhook", cluster.Temporal}
	for i, process := range killed {
		at := 20 + i*60
		s.await(func(v observer.View) bool { return v.Updated >= at })
		require.NoError(t, stack.Kill(process))
		require.NoError(t, stack.StartAgain(s.ctx, process))
		pods := s.pods()
		for k := range 3 {
			require.NoError(t, stack.kube.Delete(s.ctx, &pods[(at*7+k*50)%len(pods)]))
		}
	}
	s.await(observer.Converged(owners * zones))
	s.eachWrite(nodeOf, func(pods map[string]int) {
		assert.LessOrEqual(t, len(pods), 1, "zones with upgrades in progress: %v", pods)
	})
	s.eachWrite(ownerOf, func(pods map[string]int) {
		for owner, n := range pods {
			assert.LessOrEqual(t, n, 1, "upgrades of %s", owner)
		}
	})
	asked, _ := s.watched.Updates()
	t.Logf("%d upgrades", len(asked))
}

// eachWrite calls check at each write with the number of upgrades in progress for each group of pods. The
// upgrade of a deleted pod is in progress until the replacement is upgraded or ready. The replacement is in
// the same zone and has the same owner.
func (s *scenario) eachWrite(group func(observer.Update) string, check func(pods map[string]int)) {
	asked, served := s.watched.Updates()
	place := func(u observer.Update) string { return u.Node + "/" + u.Labels["owner"] }
	for _, at := range asked {
		inProgress := map[string]observer.Update{}
		for _, u := range asked {
			if !u.At.After(at.At) && u.At.After(inProgress[place(u)].At) {
				inProgress[place(u)] = u
			}
		}
		for _, u := range served {
			if began, ok := inProgress[place(u)]; ok && u.At.After(began.At) && !u.At.After(at.At) {
				delete(inProgress, place(u))
			}
		}
		pods := map[string]int{}
		for _, u := range inProgress {
			pods[group(u)]++
		}
		check(pods)
	}
}

// protect creates a PodDisruptionBudget for the pods of an owner.
func (s *scenario) protect(owner string) {
	s.t.Helper()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: owner}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"owner": owner}}
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	require.NoError(s.t, stack.kube.Create(s.ctx, budget))
}
