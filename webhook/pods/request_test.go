package pods

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

// answered returns the response of the handler to a body.
func answered(t *testing.T, body string) (status int, text string) {
	t.Helper()
	handler := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")))
	buffers := &server.Buffers{}
	buffers.Body.WriteString(body)
	status, err := review.Answer(handler.Answer)(t.Context(), buffers)
	if err != nil {
		return status, err.Error()
	}
	return status, buffers.Answer.String()
}

func TestAnInvalidReviewOfAPodIsABadRequest(t *testing.T) {
	pod := string(reviewOf(t, fixture.Pod(fixture.Container("app"))))
	request := func(change, to string) string {
		changed := strings.Replace(pod, change, to, 1)
		require.NotEqual(t, pod, changed)
		return changed
	}
	const noReview, noRequest = "not an AdmissionReview", "has no request"
	for name, c := range map[string]struct {
		body string
		want int
		says string
	}{
		"a pod":                   {pod, 200, `"patchType":"JSONPatch"`},
		"empty body":              {"", 400, "read the AdmissionReview"},
		"not JSON":                {"hello", 400, "read the AdmissionReview"},
		"cut off":                 {pod[:len(pod)/2], 400, "read the AdmissionReview"},
		"a list":                  {"[]", 400, "read the AdmissionReview"},
		"null":                    {"null", 400, noReview},
		"deep arrays":             {strings.Repeat("[", 6<<20), 400, "read the AdmissionReview"},
		"deep objects in the pod": {request(`"status":{}`, `"status":`+strings.Repeat(`{"a":`, 1<<20)), 400, "read the AdmissionReview"},
		"another kind of review":  {request("AdmissionReview", "TokenReview"), 400, noReview},
		"another version":         {request("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), 400, noReview},
		"no request":              {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, noRequest},
		"no object":               {request(`"object":`, `"x":`), 400, errNoPod.Error()},
		"another kind":            {request(`"kind":"Pod"`, `"kind":"Node"`), 400, errNoPod.Error()},
		"another kind of object":  {request(`"object":{`, `"object":{"kind":"Service",`), 400, errNoPod.Error()},
		"a number as object":      {request(`"object":{`, `"object":5,"x":{`), 400, "read the AdmissionReview"},
		"a pod without metadata":  {request(`"metadata":`, `"x":`), 400, errIncompletePod.Error()},
		"a pod without spec":      {request(`"spec":`, `"x":`), 400, errIncompletePod.Error()},
		"labels of another type":  {request(`"labels":`, `"labels":7,"x":`), 400, "read the AdmissionReview"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := answered(t, c.body)
			assert.Equal(t, c.want, status, text)
			assert.Contains(t, text, c.says)
		})
	}
}

func TestAnUndecodableSpecRejectsThePod(t *testing.T) {
	body := strings.Replace(string(reviewOf(t, fixture.Pod(fixture.Container("app")))), `"containers":`, `"containers":"none","x":`, 1)
	status, text := answered(t, body)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, `"allowed":false`)
	assert.Contains(t, text, `"code":400`)
	assert.Contains(t, text, "read the pod's spec")
}
