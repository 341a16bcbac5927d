package review

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/webhook/server"
)

func answer(t *testing.T, body string, handle admission.HandlerFunc) (status int, text string, err error) {
	t.Helper()
	buffers := &server.Buffers{}
	buffers.Body.WriteString(body)
	status, err = Answer(Handle(handle))(t.Context(), buffers)
	return status, buffers.Answer.String(), err
}

func TestAHandlerAnswersWholeReviews(t *testing.T) {
	status, text, err := answer(t, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","name":"n"}}`,
		func(_ context.Context, req admission.Request) admission.Response {
			assert.Equal(t, "n", req.Name)
			return admission.Allowed("")
		})
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.JSONEq(t, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true,"status":{"metadata":{},"code":200}}}`, text)
}

func TestAnInvalidReviewIsABadRequest(t *testing.T) {
	for body, want := range map[string]error{
		"":   nil,
		"{}": errNoReview,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`: errNoRequest,
	} {
		status, _, err := answer(t, body, func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
		require.Error(t, err, body)
		assert.Equal(t, http.StatusBadRequest, status, body)
		if want == nil {
			require.ErrorContains(t, err, "read the AdmissionReview")
		} else {
			require.ErrorIs(t, err, want)
		}
	}
}

func TestTheFailurePolicyDecidesAnUndecidedRequest(t *testing.T) {
	cause := errors.New("away")
	for wrapped, want := range map[error]int{UndecidedError{cause}: http.StatusInternalServerError, cause: http.StatusBadRequest} {
		decide := Answer(func(context.Context, *server.Buffers) (*admissionv1.AdmissionResponse, error) { return nil, wrapped })
		status, err := decide(t.Context(), &server.Buffers{})
		require.ErrorIs(t, err, cause)
		assert.Equal(t, want, status)
	}
}
