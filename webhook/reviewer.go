package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// reviewer answers the AdmissionReviews that come in on one path.
type reviewer struct {
	log logr.Logger
	// answer decides about the review in an exchange. An error is a review that
	// makes no sense.
	answer func(context.Context, *exchange) (*admissionv1.AdmissionResponse, error)
	// exchanges are used again.
	exchanges sync.Pool
}

// exchange is the memory of one request. What an answer refers to may be in it.
type exchange struct {
	body, answer bytes.Buffer
	patch        []byte
}

// keptMemory is how much of a buffer waits for the next request: the usual ones
// fit, and a few huge ones leave nothing behind.
const keptMemory = 64 << 10

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, used := v.exchanges.Get().(*exchange)
	if !used {
		x = &exchange{}
	}
	defer v.giveBack(x)
	defer v.rescue(w)
	if status, err := v.exchange(r, x); err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(x.answer.Len()))
	// A client that has gone away needs no answer.
	_, _ = w.Write(x.answer.Bytes())
}

// exchange reads the request and prepares the answer, or says why there is none.
func (v *reviewer) exchange(r *http.Request, x *exchange) (status int, err error) {
	if _, err := x.body.ReadFrom(r.Body); err != nil {
		var limit *http.MaxBytesError
		if errors.As(err, &limit) {
			return http.StatusRequestEntityTooLarge, errors.New(tooLarge(limit.Limit))
		}
		return http.StatusBadRequest, fmt.Errorf("read the AdmissionReview: %w", err)
	}
	response, err := v.answer(r.Context(), x)
	if err != nil {
		return http.StatusBadRequest, err
	}
	err = json.NewEncoder(&x.answer).Encode(&admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("encode the answer: %w", err)
	}
	return http.StatusOK, nil
}

func (v *reviewer) giveBack(x *exchange) {
	if max(x.body.Cap(), x.answer.Cap(), cap(x.patch)) > keptMemory {
		return
	}
	x.body.Reset()
	x.answer.Reset()
	v.exchanges.Put(x)
}

// rescue keeps one request that fails from being more than that.
func (v *reviewer) rescue(w http.ResponseWriter) {
	if cause := recover(); cause != nil {
		v.log.Error(fmt.Errorf("panic: %v", cause), "admission failed", "stack", string(debug.Stack()))
		http.Error(w, "internal error, see the webhook's log", http.StatusInternalServerError)
	}
}

func reviewType() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
}

var (
	errNoReview  = errors.New("this is no AdmissionReview of admission.k8s.io/v1")
	errNoRequest = errors.New("the AdmissionReview has no request")
)

// checkReview looks at what all reviews have in common.
func checkReview(kind metav1.TypeMeta, hasRequest bool) error {
	switch {
	case kind != reviewType():
		return errNoReview
	case !hasRequest:
		return errNoRequest
	}
	return nil
}

// reviewed lets a handler answer whole reviews.
func reviewed(handler admission.Handler) func(context.Context, *exchange) (*admissionv1.AdmissionResponse, error) {
	return func(ctx context.Context, x *exchange) (*admissionv1.AdmissionResponse, error) {
		var review admissionv1.AdmissionReview
		if err := utiljson.Unmarshal(x.body.Bytes(), &review); err != nil {
			return nil, fmt.Errorf("read the AdmissionReview: %w", err)
		}
		if err := checkReview(review.TypeMeta, review.Request != nil); err != nil {
			return nil, err
		}
		response := handler.Handle(ctx, admission.Request{AdmissionRequest: *review.Request})
		response.UID = review.Request.UID
		return &response.AdmissionResponse, nil
	}
}
