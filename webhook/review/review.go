// Package review decodes and answers AdmissionReviews.
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

	"github.com/outrigger/outrigger/internal/jsonpatch"
	"github.com/outrigger/outrigger/webhook/server"
)

// Decider returns the response to the review in the body of a request. An error means that the review is
// invalid, unless the error is an UndecidedError.
type Decider func(context.Context, *server.Buffers) (*admissionv1.AdmissionResponse, error)

// UndecidedError means that the request can be neither allowed nor rejected. The server answers with status
// 500, so that the API server applies the failurePolicy of the webhook.
type UndecidedError struct{ Err error }

func (e UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UndecidedError) Unwrap() error { return e.Err }

// Answer returns a responder that answers AdmissionReviews with the responses of decide.
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

// TypeMeta returns the type of AdmissionReviews.
func TypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
}

var (
	errNoReview  = errors.New("not an AdmissionReview of admission.k8s.io/v1")
	errNoRequest = errors.New("the AdmissionReview has no request")
)

// Check returns an error if kind is not the type of AdmissionReviews, or if hasRequest is false.
func Check(kind metav1.TypeMeta, hasRequest bool) error {
	switch {
	case kind != TypeMeta():
		return errNoReview
	case !hasRequest:
		return errNoRequest
	}
	return nil
}

// Handle returns the Decider of a controller-runtime handler.
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

// Patched returns a response that allows the request, with a patch of operations. If operations is empty,
// the response has no patch.
func Patched(operations []jsonpatch.Operation) admission.Response {
	encoded, err := json.Marshal(operations)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("encode the patch: %w", err))
	}
	response := admission.Allowed("")
	if len(operations) > 0 {
		response.Patch, response.PatchType = encoded, new(admissionv1.PatchTypeJSONPatch)
	}
	return response
}
