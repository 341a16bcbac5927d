package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/webhook/server"
)

// Decider decides about the review in a request's body. An error is a review that
// makes no sense, or an UndecidedError.
type Decider func(context.Context, *server.Buffers) (*admissionv1.AdmissionResponse, error)

// UndecidedError is a request that nobody can decide about: it is answered with
// HTTP 500, so that the failurePolicy of the webhook decides.
type UndecidedError struct{ Err error }

func (e UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns what kept the request from being decided.
func (e UndecidedError) Unwrap() error { return e.Err }

// Answer answers AdmissionReviews.
func Answer(decide Decider) server.Responder {
	return func(ctx context.Context, buffers *server.Buffers) (status int, err error) {
		response, err := decide(ctx, buffers)
		if _, undecided := errors.AsType[UndecidedError](err); undecided {
			return http.StatusInternalServerError, err
		}
		if err != nil {
			return http.StatusBadRequest, err
		}
		err = json.NewEncoder(&buffers.Answer).Encode(&admissionv1.AdmissionReview{TypeMeta: TypeMeta(), Response: response})
		if err != nil {
			return http.StatusInternalServerError, fmt.Errorf("encode the answer: %w", err)
		}
		return http.StatusOK, nil
	}
}

// TypeMeta is that of every AdmissionReview.
func TypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
}

var (
	errNoReview  = errors.New("this is no AdmissionReview of admission.k8s.io/v1")
	errNoRequest = errors.New("the AdmissionReview has no request")
)

// Check refuses what is no AdmissionReview, by the parts that all of them have.
func Check(kind metav1.TypeMeta, hasRequest bool) error {
	switch {
	case kind != TypeMeta():
		return errNoReview
	case !hasRequest:
		return errNoRequest
	}
	return nil
}

// Handle lets a handler of controller-runtime decide.
func Handle(handler admission.Handler) Decider {
	return func(ctx context.Context, buffers *server.Buffers) (*admissionv1.AdmissionResponse, error) {
		var review admissionv1.AdmissionReview
		if err := utiljson.Unmarshal(buffers.Body.Bytes(), &review); err != nil {
			return nil, fmt.Errorf("read the AdmissionReview: %w", err)
		}
		if err := Check(review.TypeMeta, review.Request != nil); err != nil {
			return nil, err
		}
		response := handler.Handle(ctx, admission.Request{AdmissionRequest: *review.Request})
		response.UID = review.Request.UID
		return &response.AdmissionResponse, nil
	}
}
