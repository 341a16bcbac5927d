package sidecarsets

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

func TestSpec5_UndecodableValuesAreRejectedByField(t *testing.T) {
	for text, want := range map[string][]string{
		`spec: {containers: side}`:                        {`spec.containers: Invalid value: "side": want list`},
		`spec: {containers: [{name: 5, image: [x]}, {}]}`: {`spec.containers[0].image: Invalid value: "[\"x\"]": want string`, `spec.containers[0].name: Invalid value: "5": want string`},
		`spec: {updateStrategy: {paused: "yes"}}`:         {`spec.updateStrategy.paused: Invalid value: "yes": want bool`},
		`spec: {volumes: [{}, {hostPath: /x}]}`:           {`spec.volumes[1].hostPath: Invalid value: "/x": want object`},
		`spec: {containers: [{resources: {limits: {cpu: x, memory: 1}, requests: {memory: 1Gq}}}]}`: {
			`spec.containers[0].resources.limits[cpu]: Invalid value: "x": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
			`spec.containers[0].resources.requests[memory]: Invalid value: "1Gq": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		},
		`metadata: {labels: {a: 1}}`: {`metadata.labels[a]: Invalid value: "1": want string`},
		`spec: {unknown: {a: 1}}`:    nil,
	} {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "s", Object: runtime.RawExtension{Raw: raw}}}
		result := undecodable(req, errors.New("cause")).Result
		if want == nil {
			assert.EqualValues(t, 400, result.Code)
			assert.Contains(t, result.Message, "SidecarSet s: cause")
			continue
		}
		assert.EqualValues(t, 422, result.Code)
		assert.Equal(t, metav1.StatusReasonInvalid, result.Reason)
		var got []string
		for _, cause := range result.Details.Causes {
			got = append(got, cause.Field+": "+cause.Message)
			assert.Contains(t, result.Message, cause.Field+": "+cause.Message)
		}
		assert.Equal(t, want, got, text)
	}
}
