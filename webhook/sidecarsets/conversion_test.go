package sidecarsets

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/webhook/server"
)

func answer(t *testing.T, body string) (status int, text string, err error) {
	t.Helper()
	buffers := &server.Buffers{}
	buffers.Body.WriteString(body)
	status, err = Convert(t.Context(), buffers)
	return status, buffers.Answer.String(), err
}

func TestReviewsAreAnsweredObjectByObject(t *testing.T) {
	status, text, err := answer(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{
		"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[
		{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"a"},"spec":{"revisionHistoryLimit":9007199254740993}},
		{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"b","labels":{"apps.kruise.io/sidecarset-custom-version":"v1"}}}]}}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{
		"uid":"u","result":{"metadata":{},"status":"Success"},"convertedObjects":[
		{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"a"},"spec":{"revisionHistoryLimit":9007199254740993}},
		{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"b"},"spec":{"customVersion":"v1"}}]}}`, text)
	assert.Contains(t, text, "9007199254740993", "integers stay exact")
}

func TestAReviewFailsAsAWhole(t *testing.T) {
	status, text, err := answer(t, `{"request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1","objects":[{"apiVersion":"apps.kruise.io/v1alpha1"}]}}`)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	var answer struct {
		Response struct {
			UID              string
			Result           struct{ Status, Message string }
			ConvertedObjects []any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	assert.Equal(t, "u", answer.Response.UID)
	assert.Equal(t, "Failure", answer.Response.Result.Status)
	assert.Contains(t, answer.Response.Result.Message, `no conversion from "apps.kruise.io/v1alpha1" to "apps.kruise.io/v1"`)
	assert.Empty(t, answer.Response.ConvertedObjects)
}

func TestAnInvalidReviewIsABadRequest(t *testing.T) {
	for _, body := range []string{"", "{}", "[]", `{"request":null}`} {
		status, _, err := answer(t, body)
		require.ErrorContains(t, err, "the ConversionReview", body)
		assert.Equal(t, http.StatusBadRequest, status, body)
	}
}
