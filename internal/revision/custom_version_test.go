package revision

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSetsThatNobodyConvertedKeepTheirCustomVersion(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	assert.Empty(t, CustomVersion(set))
	set.Spec.CustomVersion = "one"
	updated := &appsv1.ControllerRevision{}
	MakeLatest(updated, set, 1)
	assert.Equal(t, "one", updated.Labels[v1alpha1.CustomVersionLabel])
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "two"}
	assert.Equal(t, "two", CustomVersion(set), "whoever sets the label means it")
}
