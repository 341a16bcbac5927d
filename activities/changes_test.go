package activities

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
)

// The cache of populations returns the cached state of an object even if the test changes the object in place. A
// result with the old state therefore shows that the state is still cached.
func TestEveryWorkerReleasesTheStateOfACompletedOrDeletedSet(t *testing.T) {
	finished := logs(2)
	finished.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse}}
	rolling := logs(2)
	rolling.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue}}
	for name, c := range map[string]struct {
		event func(*Activities)
		freed bool
	}{
		"rolled out":                 {func(a *Activities) { a.setChanged(finished) }, true},
		"deleted":                    {func(a *Activities) { a.setDeleted(rolling) }, true},
		"deleted while not watching": {func(a *Activities) { a.setDeleted(toolscache.DeletedFinalStateUnknown{Obj: rolling}) }, true},
		"rolling out":                {func(a *Activities) { a.setChanged(rolling) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := newActivities(t, interceptor.Funcs{})
			set := logs(2)
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			fixture.Hashed(set)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p1", Labels: set.Spec.Selector.MatchLabels, Annotations: map[string]string{
				v1alpha1.InjectedListAnnotation: "logs", v1alpha1.HashAnnotation: `{"logs":{"hash":"old"}}`,
			}}}
			updated := func() bool {
				population, err := a.populations.Population(set, []*corev1.Pod{pod}, kube.NamespaceLabels(t.Context(), a.Cache))
				require.NoError(t, err)
				require.Len(t, population, 1)
				return population[0].Updated
			}
			require.False(t, updated())
			pod.Annotations[v1alpha1.HashAnnotation] = fixture.HashEntry(set, v1alpha1.HashAnnotation)
			require.False(t, updated(), "kept")
			changed := a.Changes.Next("logs")
			c.event(a)
			assert.Equal(t, c.freed, updated())
			<-changed
		})
	}
}
