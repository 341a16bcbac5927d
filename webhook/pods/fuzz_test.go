package pods

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

func aMoment() metav1.Time { return metav1.NewTime(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)) }

// fromWholePod injects in the same way as the handler, but decodes all fields of the pod.
func fromWholePod(t testing.TB, podJSON []byte, set *v1alpha1.SidecarSet) (patch []byte, rejection error) {
	var pod corev1.Pod
	require.NoError(t, utiljson.Unmarshal(podJSON, &pod))
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	if match.Mirror(&pod) {
		return nil, nil
	}
	compiled := compile(set)
	require.NoError(t, compiled.newestErr)
	injection, err := inject.Pod(&pod, []*inject.Set{compiled.newest}, aMoment())
	if err != nil {
		return nil, err
	}
	patch, err = json.Marshal(injection.Patch())
	require.NoError(t, err)
	return patch, nil
}

func sameAsFromWholePod(t testing.TB, handler *Handler, podJSON []byte, set *v1alpha1.SidecarSet) {
	handler.now = aMoment
	handler.sets.informed.put(set)
	response := admitted(t, handler, json.RawMessage(podJSON))
	patch, rejection := fromWholePod(t, podJSON, set)
	switch {
	case rejection != nil:
		require.False(t, response.Allowed)
		assert.Equal(t, rejection.Error(), response.Result.Message)
	case patch == nil:
		require.True(t, response.Allowed)
		assert.Empty(t, response.Patch)
	default:
		require.True(t, response.Allowed, "%v", response.Result)
		assert.JSONEq(t, string(patch), string(response.Patch))
	}
}

// FuzzPods checks that the fields that the handler does not decode do not change the patch.
func FuzzPods(f *testing.F) {
	for _, seed := range []string{"", "drawn", "\x05\x02\x01\x00\x03\x01\x02\x03\x00\x01\x02\x03\x04\x05\x06\x07"} {
		f.Add([]byte(seed))
	}
	handler := handlerFor(f, interceptor.Funcs{}, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, set := fixture.Draw(data)
		defaults.Write(set)
		if len(validation.Validate(set)) > 0 {
			return
		}
		// The API server sends only decodable pods.
		sent, err := json.Marshal(pod)
		require.NoError(t, err)
		sameAsFromWholePod(t, handler, sent, set)
	})
}

// FuzzReviews checks that the response to any body is a review, or status 400 with a reason.
func FuzzReviews(f *testing.F) {
	handler := handlerFor(f, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")))
	answer := review.Answer(handler.Answer)
	whole := reviewOf(f, fixture.Pod(fixture.Container("app")))
	f.Add(whole)
	f.Add([]byte(strings.Replace(string(whole), `"object":`, `"object":null,"x":`, 1)))
	f.Add([]byte(strings.Replace(string(whole), `"containers":[`, `"containers":[null,`, 1)))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"\u0000<","object":{"metadata":{},"spec":{}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		buffers := &server.Buffers{}
		buffers.Body.Write(body)
		status, err := answer(t.Context(), buffers)
		if status == http.StatusBadRequest {
			assert.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		var review admissionv1.AdmissionReview
		require.NoError(t, json.Unmarshal(buffers.Answer.Bytes(), &review))
		require.NotNil(t, review.Response)
		assert.True(t, review.Response.Allowed || review.Response.Result.Message != "")
	})
}
