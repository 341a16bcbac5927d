package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// exchange is the memory of one request.
type exchange struct {
	body, answer bytes.Buffer
}

// keptMemory is how much of a buffer waits for the next request: the usual ones
// fit, and a few huge ones leave nothing behind.
const keptMemory = 64 << 10

// read takes a body of at most this size; a length below zero is not known.
func (x *exchange) read(body io.Reader, length int64, most size) (status int, err error) {
	if length > 0 {
		x.body.Grow(int(min(length, smallBody)) + bytes.MinRead)
	}
	_, err = x.body.ReadFrom(io.LimitReader(body, most.bytes+1))
	switch {
	case timedOut(err):
		return http.StatusRequestTimeout, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case int64(x.body.Len()) > most.bytes:
		return http.StatusRequestEntityTooLarge, most.tooLarge()
	case count(x.body.Bytes()) > most.values:
		return http.StatusRequestEntityTooLarge, fmt.Errorf("send at most %d values", most.values)
	}
	return http.StatusOK, nil
}

// decider decides about the review in an exchange. An error is a review that
// makes no sense, or errUndecided.
type decider func(context.Context, *exchange) (*admissionv1.AdmissionResponse, error)

// reviews answers AdmissionReviews.
func reviews(decide decider) responder {
	return func(ctx context.Context, x *exchange) (status int, err error) {
		response, err := decide(ctx, x)
		if errors.Is(err, errUndecided) {
			return http.StatusInternalServerError, err
		}
		if err != nil {
			return http.StatusBadRequest, err
		}
		err = json.NewEncoder(&x.answer).Encode(&admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response})
		if err != nil {
			return http.StatusInternalServerError, fmt.Errorf("encode the answer: %w", err)
		}
		return http.StatusOK, nil
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
func reviewed(handler admission.Handler) decider {
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
