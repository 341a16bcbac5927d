package actions

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func reviewed(t *testing.T, object string) admission.Response {
	t.Helper()
	return SetUser(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: []byte(object)},
	}})
}

func TestSpec11_13_TheUserOfAnActionIsTheUserOfTheRequest(t *testing.T) {
	for _, object := range []string{`{"spec":{"verb":"pause"}}`, `{"spec":{"verb":"pause","requestedBy":"bob"}}`, `{"spec":{"requestedBy":7,"later":true}}`} {
		response := reviewed(t, object)
		assert.True(t, response.Allowed, object)
		assert.JSONEq(t, `[{"op":"add","path":"/spec/requestedBy","value":"ann"}]`, string(response.Patch), object)
	}
}

func TestSpec11_13_AnActionWithoutASpecIsNotPatched(t *testing.T) {
	for _, object := range []string{`{}`, `{"spec":null}`} {
		response := reviewed(t, object)
		assert.True(t, response.Allowed, "the definition rejects it")
		assert.Empty(t, response.Patch, object)
	}
	response := reviewed(t, `{"spec":[]}`)
	assert.False(t, response.Allowed)
	assert.EqualValues(t, http.StatusBadRequest, response.Result.Code)
}
