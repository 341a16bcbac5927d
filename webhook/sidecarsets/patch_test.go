package sidecarsets

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/revision"
)

// completed applies the JSON patch that difference returns to raw, and returns the patched object.
func completed(t *testing.T, raw string) string {
	t.Helper()
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, json.Unmarshal([]byte(raw), set))
	defaults.Write(set)
	require.NoError(t, revision.WriteHashes(set))
	operations, err := difference([]byte(raw), set)
	require.NoError(t, err)
	encoded, err := json.Marshal(operations)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(encoded)
	require.NoError(t, err)
	result, err := patch.Apply([]byte(raw))
	require.NoError(t, err)
	return string(result)
}

func TestSpec1_KnownFieldsAreCompletedAndUnknownOnesSurvive(t *testing.T) {
	result := completed(t, `{"metadata":{"name":"s","annotations":{"mine":"kept"}},"spec":{
		"injectionStrategy":{"paused":false},
		"containers":[{"name":"a","image":"b:1","env":[],"future":{"n":9007199254740993,"list":[{"x":null}]},
			"resources":{"limits":{"cpu":"0.5"},"futureResource":1},
			"livenessProbe":{"tcpSocket":{"port":"http","futurePort":2}},
			"securityContext":{"runAsUser":null,"futureContext":true}}],
		"volumes":[{"name":"v"},{"name":"w","futureSource":{"a":1}},{"name":"x","emptyDir":{"future":1}}]}}`)
	var got struct {
		Metadata struct{ Annotations map[string]string }
		Spec     json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(result), &got))
	assert.Len(t, got.Metadata.Annotations, 3)
	assert.Equal(t, "kept", got.Metadata.Annotations["mine"])
	assert.Contains(t, string(got.Spec), "9007199254740993", "no digit is lost")
	assert.JSONEq(t, `{
		"updateStrategy":{"type":"RollingUpdate","partition":0,"maxUnavailable":1},"injectionStrategy":{},"revisionHistoryLimit":10,
		"containers":[{"name":"a","image":"b:1","imagePullPolicy":"IfNotPresent","future":{"n":9007199254740993,"list":[{"x":null}]},
			"resources":{"limits":{"cpu":"500m"},"futureResource":1},
			"livenessProbe":{"tcpSocket":{"port":"http","futurePort":2},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},
			"securityContext":{"futureContext":true},
			"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
			"podInjectPolicy":"BeforeAppContainer","upgradeStrategy":{"upgradeType":"ColdUpgrade"},"shareVolumePolicy":{"type":"disabled"}}],
		"volumes":[{"name":"v","emptyDir":{}},{"name":"w","futureSource":{"a":1}},{"name":"x","emptyDir":{"future":1}}]}`, string(got.Spec))
}

func TestACompletedSetHasNoDifference(t *testing.T) {
	once := completed(t, `{"metadata":{"name":"s"},"spec":{"containers":[{"name":"a","image":"b","future":1}],"volumes":[{"name":"v","future":{}}]}}`)
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, json.Unmarshal([]byte(once), set))
	defaults.Write(set)
	require.NoError(t, revision.WriteHashes(set))
	operations, err := difference([]byte(once), set)
	require.NoError(t, err)
	assert.Empty(t, operations)
}

// A SidecarSet that was stored as v1beta1 and not converted has the field customVersion.
func TestACustomVersionBecomesTheLabel(t *testing.T) {
	for metadata, want := range map[string]string{
		`"name":"s"`:                       `{"apps.kruise.io/sidecarset-custom-version":"one"}`,
		`"name":"s","labels":{"team":"a"}`: `{"team":"a","apps.kruise.io/sidecarset-custom-version":"one"}`,
		`"name":"s","labels":{"apps.kruise.io/sidecarset-custom-version":"two"}`: `{"apps.kruise.io/sidecarset-custom-version":"two"}`,
	} {
		var got struct {
			Metadata struct{ Labels json.RawMessage }
			Spec     map[string]any
		}
		result := completed(t, `{"metadata":{`+metadata+`},"spec":{"customVersion":"one","containers":[{"name":"a","image":"b:1"}]}}`)
		require.NoError(t, json.Unmarshal([]byte(result), &got))
		assert.JSONEq(t, want, string(got.Metadata.Labels))
		assert.NotContains(t, got.Spec, "customVersion")
	}
}
