package sidecarsets

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSpec1_UnknownFieldsCauseWarnings(t *testing.T) {
	assert.Equal(t, []string{
		`unknown field "spec.containers[0].futureField": it is kept, but not injected`,
		`unknown field "spec.containers[0].lifecycle.futureHook": it is kept, but not injected`,
		`unknown field "spec.containers[1].env[1].vaule": it is kept, but not injected`,
		`unknown field "spec.volumes[0].futureSource": it is kept, but not injected`,
	}, unknownFields([]byte(`{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet",
		"metadata":{"name":"x","labels":{"a":"b"},"managedFields":[{"fieldsV1":{"f:spec":{}}}],"creationTimestamp":null},"spec":{
		"selector":{"matchLabels":{"a":"b"}},"updateStrategy":{"maxUnavailable":"10%"},
		"containers":[
			{"name":"a","image":"a:1","resources":{"limits":{"cpu":"1"}},"podInjectPolicy":"BeforeAppContainer","futureField":{"a":{"b":1}},"lifecycle":{"futureHook":1}},
			{"name":"b","env":[{"name":"A","value":"a"},{"name":"A","vaule":"a"}]}],
		"volumes":[{"name":"v","futureSource":{}}]}}`)))
	assert.Empty(t, unknownFields([]byte(`{"spec":{"containers":"none","volumes":null}}`)))
}
