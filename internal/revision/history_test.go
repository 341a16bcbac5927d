package revision

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// recorded returns revision r<number>, with image v<number> and hash h<number>.
func recorded(number int64, customVersion string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("r%d", number),
			Labels:      map[string]string{v1alpha1.CustomVersionLabel: customVersion},
			Annotations: map[string]string{v1alpha1.HashAnnotation: fmt.Sprintf("h%d", number)},
		},
		Data:     runtime.RawExtension{Raw: contentOf(number)},
		Revision: number,
	}
}

func contentOf(number int64) []byte {
	return fmt.Appendf(nil, `{"spec":{"containers":[{"name":"proxy","image":"proxy:v%d"}]}}`, number)
}

func names(revisions []*appsv1.ControllerRevision) []string {
	found := []string{}
	for _, r := range revisions {
		found = append(found, r.Name)
	}
	return found
}

func pod(annotation string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.HashAnnotation: annotation}}}
}

func TestSpec6_RevisionsAreSortedByNumberThenAge(t *testing.T) {
	older, newer := recorded(2, ""), recorded(2, "")
	older.Name, newer.Name = "z-older", "a-newer"
	newer.CreationTimestamp = metav1.Unix(100, 0)
	twin := newer.DeepCopy()
	twin.Name = "b-newer"
	sorted := []*appsv1.ControllerRevision{twin, newer, recorded(3, ""), older, recorded(1, "")}
	Sort(sorted)
	assert.Equal(t, []string{"r1", "z-older", "a-newer", "b-newer", "r3"}, names(sorted))
}

func TestSpec6_EqualContentIsFoundNewestFirst(t *testing.T) {
	twin := recorded(3, "")
	twin.Data.Raw = contentOf(1)
	sorted := []*appsv1.ControllerRevision{recorded(1, ""), recorded(2, ""), twin}
	assert.Equal(t, "r3", Find(sorted, contentOf(1)).Name)
	assert.Equal(t, "r2", Find(sorted, contentOf(2)).Name)
	assert.Nil(t, Find(sorted, contentOf(4)))
}

func TestSpec6_GoingBackRenumbers(t *testing.T) {
	sorted := []*appsv1.ControllerRevision{recorded(1, ""), recorded(2, ""), recorded(5, "")}
	assert.Equal(t, int64(1), NumberFor(nil, nil), "the first revision")
	assert.Equal(t, int64(6), NumberFor(nil, sorted), "new content")
	assert.Equal(t, int64(6), NumberFor(sorted[0], sorted), "old content becomes the newest")
	assert.Equal(t, int64(5), NumberFor(sorted[2], sorted), "the newest keeps its number")
}

func TestSpec6_HistoryLimitKeepsUsedPinnedAndGood(t *testing.T) {
	five := func() []*appsv1.ControllerRevision {
		return []*appsv1.ControllerRevision{recorded(1, "x"), recorded(2, "a"), recorded(3, "a"), recorded(4, ""), recorded(5, "")}
	}
	pinName := &v1alpha1.SidecarSetInjectRevision{RevisionName: new("r1")}
	pinVersion := &v1alpha1.SidecarSetInjectRevision{CustomVersion: new("a")}
	for _, c := range []struct {
		name  string
		limit *int32
		pin   *v1alpha1.SidecarSetInjectRevision
		pods  []*corev1.Pod
		good  []v1alpha1.GoodRevision
		want  []string
	}{
		{name: "the last two good revisions", limit: new(int32(1)), want: []string{"r1", "r3", "r4"}, good: []v1alpha1.GoodRevision{
			{Revision: "r4"}, {Revision: "r5", ResourceVersion: "9"}, {Revision: "r2", ResourceVersion: "5"}, {Revision: "r1", ResourceVersion: "4"}}},
		{name: "default limit is ten", want: []string{}},
		{name: "at the limit", limit: new(int32(5)), want: []string{}},
		{name: "oldest go first", limit: new(int32(3)), want: []string{"r1", "r2"}},
		{name: "at least one revision is kept", limit: new(int32(0)), want: []string{"r1", "r2", "r3", "r4"}},
		{name: "pinned by name", limit: new(int32(1)), pin: pinName, want: []string{"r2", "r3", "r4"}},
		{name: "pinned by custom version: the newest with it", limit: new(int32(1)), pin: pinVersion, want: []string{"r1", "r2", "r4"}},
		{name: "an empty name is no name", limit: new(int32(1)), pin: &v1alpha1.SidecarSetInjectRevision{RevisionName: new(""), CustomVersion: new("a")}, want: []string{"r1", "r2", "r4"}},
		{name: "pinned version unknown", limit: new(int32(4)), pin: &v1alpha1.SidecarSetInjectRevision{CustomVersion: new("none")}, want: []string{"r1"}},
		{name: "used by pods", limit: new(int32(1)), want: []string{"r2", "r4"}, pods: []*corev1.Pod{
			pod(`{"mesh":{"hash":"h1","controllerRevision":"r1"}}`), pod(`{"mesh":{"hash":"h3","controllerRevision":"r3"}}`),
			pod(`{"other":{"hash":"h2","controllerRevision":"r2"}}`), pod(`not JSON`),
		}},
		{name: "used by a pod of the older form", limit: new(int32(1)), want: []string{"r1", "r3", "r4"}, pods: []*corev1.Pod{pod(`{"mesh":"h2"}`)}},
		{name: "used by a pod with another revision name", limit: new(int32(1)), want: []string{"r1", "r3", "r4"}, pods: []*corev1.Pod{pod(`{"mesh":{"hash":"h2","controllerRevision":"never made"}}`)}},
		{name: "used by a pod with the name of another revision", limit: new(int32(1)), want: []string{"r3", "r4"}, pods: []*corev1.Pod{pod(`{"mesh":{"hash":"h2","controllerRevision":"r1"}}`)}},
		{name: "used revisions count", limit: new(int32(4)), want: []string{"r2"}, pods: []*corev1.Pod{pod(`{"mesh":{"hash":"h1","controllerRevision":"r1"}}`)}},
	} {
		s := set("proxy:v5")
		s.Spec.RevisionHistoryLimit = c.limit
		s.Spec.InjectionStrategy.Revision, s.Status.GoodRevisions = c.pin, c.good
		assert.Equal(t, c.want, names(Expendable(s, five(), "r5", c.pods)), c.name)
	}
}
