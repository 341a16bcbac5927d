package webhook

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func review(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	convert(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, conversionPath, strings.NewReader(body)))
	return recorder
}

func TestReviewsAreAnsweredObjectByObject(t *testing.T) {
	recorder := review(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{
		"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[
		{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"a"},"spec":{"revisionHistoryLimit":9007199254740993}},
		{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"b","labels":{"apps.kruise.io/sidecarset-custom-version":"v1"}}}]}}`)
	assert.Equal(t, http.StatusOK, recorder.Code)
	assert.JSONEq(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{
		"uid":"u","result":{"metadata":{},"status":"Success"},"convertedObjects":[
		{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"a"},"spec":{"revisionHistoryLimit":9007199254740993}},
		{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"b"},"spec":{"customVersion":"v1"}}]}}`, recorder.Body.String())
	assert.Contains(t, recorder.Body.String(), "9007199254740993", "integers stay exact")
}

func TestAReviewFailsAsAWhole(t *testing.T) {
	recorder := review(t, `{"request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1","objects":[{"apiVersion":"apps.kruise.io/v1alpha1"}]}}`)
	assert.Equal(t, http.StatusOK, recorder.Code)
	var answer struct {
		Response struct {
			UID              string
			Result           struct{ Status, Message string }
			ConvertedObjects []any
		}
	}
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
	assert.Equal(t, "u", answer.Response.UID)
	assert.Equal(t, "Failure", answer.Response.Result.Status)
	assert.Contains(t, answer.Response.Result.Message, `no conversion from "apps.kruise.io/v1alpha1" to "apps.kruise.io/v1"`)
	assert.Empty(t, answer.Response.ConvertedObjects)
}

func TestWhatIsNoReviewIsABadRequest(t *testing.T) {
	for _, body := range []string{"", "{}", "[]", `{"request":null}`} {
		assert.Equal(t, http.StatusBadRequest, review(t, body).Code, "%.20s", body)
	}
}
