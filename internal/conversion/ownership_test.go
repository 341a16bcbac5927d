package conversion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func entry(manager, version, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: version,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
}

func TestOwnershipIsStoredInTermsOfV1alpha1(t *testing.T) {
	selector := &metav1.LabelSelector{}
	for name, c := range map[string]struct {
		spec          v1alpha1.SidecarSetSpec
		given, stored string
	}{
		"fields of both versions": {
			given:  `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{}}}`,
			stored: `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{}}}`,
		},
		"a custom version": {
			given:  `{"f:spec":{"f:customVersion":{}}}`,
			stored: `{"f:metadata":{"f:labels":{"f:apps.kruise.io/sidecarset-custom-version":{}}}}`,
		},
		"a selector that is a namespace": {
			spec:   v1alpha1.SidecarSetSpec{Namespace: "web"},
			given:  `{"f:spec":{"f:namespaceSelector":{},"f:selector":{}}}`,
			stored: `{"f:spec":{"f:namespace":{},"f:selector":{}}}`,
		},
		"a selector": {
			spec:   v1alpha1.SidecarSetSpec{NamespaceSelector: selector},
			given:  `{"f:spec":{"f:namespaceSelector":{}}}`,
			stored: `{"f:spec":{"f:namespaceSelector":{}}}`,
		},
		"a selector that is both, and its annotation": {
			spec:   v1alpha1.SidecarSetSpec{Namespace: "web", NamespaceSelector: selector},
			given:  `{"f:metadata":{"f:annotations":{"f:outrigger.io/v1alpha1-scope":{}}},"f:spec":{"f:namespaceSelector":{}}}`,
			stored: `{"f:spec":{"f:namespace":{},"f:namespaceSelector":{}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.SidecarSet{Spec: c.spec}
			other := entry("other", alpha, `{"f:spec":{"f:volumes":{}}}`)
			set.ManagedFields = []metav1.ManagedFieldsEntry{entry("me", beta, c.given), other}
			stored, err := StoredOwnership(set)
			require.NoError(t, err)
			assert.Equal(t, []metav1.ManagedFieldsEntry{entry("me", alpha, c.stored), other}, stored)
		})
	}
}

func TestEntriesThatBecomeTheSameManagersAreOne(t *testing.T) {
	earlier, later := metav1.NewTime(time.Unix(100, 0)), metav1.NewTime(time.Unix(200, 0))
	old := entry("me", alpha, `{"f:spec":{"f:containers":{},"f:updateStrategy":{"f:type":{}}}}`)
	young := entry("me", beta, `{"f:spec":{"f:updateStrategy":{"f:paused":{}}}}`)
	old.Time, young.Time = &earlier, &later
	status := entry("me", beta, "")
	status.Subresource, status.FieldsV1 = "status", nil
	set := &v1alpha1.SidecarSet{}
	set.ManagedFields = []metav1.ManagedFieldsEntry{old, young, status}
	stored, err := StoredOwnership(set)
	require.NoError(t, err)
	old.FieldsV1 = metav1.NewFieldsV1(`{"f:spec":{"f:containers":{},"f:updateStrategy":{"f:paused":{},"f:type":{}}}}`)
	old.Time = &later
	status.APIVersion, status.FieldsV1 = alpha, metav1.NewFieldsV1("{}")
	assert.Equal(t, []metav1.ManagedFieldsEntry{old, status}, stored)
	assert.Equal(t, young, set.ManagedFields[1], "the set is left alone")
}

func TestOwnershipOfTheStoredVersionIsLeftAlone(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	set.ManagedFields = []metav1.ManagedFieldsEntry{entry("me", alpha, "unreadable")}
	stored, err := StoredOwnership(set)
	require.NoError(t, err)
	assert.Nil(t, stored)
	set.ManagedFields[0].APIVersion = beta
	_, err = StoredOwnership(set)
	require.ErrorContains(t, err, "read the fields that me manages")
}
