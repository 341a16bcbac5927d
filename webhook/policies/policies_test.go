package policies

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func reviewed(t *testing.T, object, stored string) admission.Response {
	t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "edge", Object: runtime.RawExtension{Raw: []byte(object)}}}
	if stored != "" {
		request.OldObject.Raw = []byte(stored)
	}
	return Validate(t.Context(), request)
}

func TestSpec11_1_APolicyIsRejectedForItsNewErrors(t *testing.T) {
	const valid, invalid = `{"metadata":{"name":"edge"},"spec":{}}`, `{"metadata":{"name":"edge"},"spec":{"windows":[{"schedule":"0 99 * * *","duration":"1h"}]}}`
	assert.True(t, reviewed(t, valid, "").Allowed)
	assert.True(t, reviewed(t, valid, invalid).Allowed)
	assert.True(t, reviewed(t, invalid, invalid).Allowed, "the stored policy has the error")
	for _, stored := range []string{"", valid} {
		response := reviewed(t, invalid, stored)
		assert.False(t, response.Allowed)
		assert.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code)
		assert.Contains(t, response.Result.Message, `RolloutPolicy.outrigger.io "edge" is invalid: spec.windows[0]: Invalid value: "0 99 * * *": schedule "0 99 * * *": `)
		require.Len(t, response.Result.Details.Causes, 1)
	}
}

func TestAReviewWithoutAPolicyIsInvalid(t *testing.T) {
	for _, response := range []admission.Response{reviewed(t, `[]`, ""), reviewed(t, `{}`, `[]`)} {
		assert.False(t, response.Allowed)
		assert.EqualValues(t, http.StatusBadRequest, response.Result.Code)
	}
}
