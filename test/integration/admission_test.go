package integration

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBadManifestsAreRefusedByTheFieldThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ spec, field string }{
		"no selector":                     {`{containers: [{name: side, image: "side:v1"}]}`, "spec.selector"},
		"no containers":                   {`{selector: {matchLabels: {app: x}}}`, "spec.containers"},
		"number in a string":              {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {maxUnavailable: "5"}}`, "spec.updateStrategy.maxUnavailable"},
		"percent out of range":            {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {partition: "101%"}}`, "spec.updateStrategy.partition"},
		"containers that are not a list":  {`{selector: {matchLabels: {app: x}}, containers: "side"}`, "containers"},
		"a type that the schema disowns":  {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {paused: "yes"}}`, "spec.updateStrategy.paused"},
		"a container that has no name":    {`{selector: {matchLabels: {app: x}}, containers: [{image: "side:v1"}]}`, "spec.containers[0].name"},
		"a mount that names no volume":    {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", volumeMounts: [{name: v, mountPath: /v}]}]}`, "spec.containers[0].volumeMounts[0].name"},
		"a policy that nobody knows":      {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", podInjectPolicy: Sideways}]}`, "spec.containers[0].podInjectPolicy"},
		"an update strategy of no kind":   {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], updateStrategy: {type: Recreate}}`, "spec.updateStrategy.type"},
		"hot upgrade without empty image": {`{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1", upgradeStrategy: {upgradeType: HotUpgrade}}]}`, "spec.containers[0].upgradeStrategy.hotUpgradeEmptyImage"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := kubectl(t.Context(), "{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {name: bad}, spec: "+c.spec+"}", "apply", "-f", "-")
			require.Error(t, err, "accepted: %s", out)
			assert.Contains(t, out, c.field)
			assert.NotContains(t, out, "Internal error")
		})
	}
}

func TestUnknownContainerFieldsSurvive(t *testing.T) {
	const manifest = `{apiVersion: apps.kruise.io/v1alpha1, kind: SidecarSet, metadata: {name: future}, spec: {selector: {matchLabels: {app: future}},
		containers: [{name: side, image: "side:v1", fieldOfTheFuture: {a: 1}, lifecycle: {hookOfTheFuture: x}}]}}`
	out, err := kubectl(t.Context(), manifest, "apply", "-f", "-")
	require.NoError(t, err, out)
	defer func() {
		out, err := kubectl(t.Context(), "", "delete", "sidecarset", "future")
		assert.NoError(t, err, out)
	}()
	out, err = kubectl(t.Context(), "", "get", "sidecarset", "future", "-o", "jsonpath={.spec.containers[0].fieldOfTheFuture.a} {.spec.containers[0].lifecycle.hookOfTheFuture}")
	require.NoError(t, err, out)
	assert.Equal(t, "1 x", out)
	out, err = kubectl(t.Context(), manifest, "diff", "-f", "-")
	require.NoError(t, err, "a second apply would change something: %s", out)
}

func TestOptedOutNamespacesAreLeftAlone(t *testing.T) {
	s := newScene(t, 0, nil)
	image := func() string {
		out, err := kubectl(s.ctx, "", "run", "probe", "-n", s.name, "--image=app:1", "--labels=app="+s.name, "--dry-run=server", "-o", "jsonpath={.spec.containers[*].name}")
		require.NoError(t, err, out)
		return out
	}
	assert.Equal(t, "side probe", image())
	out, err := kubectl(s.ctx, "", "label", "namespace", s.name, "outrigger.io/injection=disabled")
	require.NoError(t, err, out)
	s.poll("the API server to leave the webhook out", func() (bool, error) { return image() == "probe", nil })
}
