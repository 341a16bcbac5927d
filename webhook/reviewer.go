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

// requestBuffers hold the body and the answer of one request.
type requestBuffers struct {
	body, answer bytes.Buffer
}

// maxPooledBuffer is how much of a buffer waits for the next request: the usual ones
// fit, and a few huge ones leave nothing behind.
const maxPooledBuffer = 64 << 10

// read takes a body of at most this size; a length below zero is not known.
func (b *requestBuffers) read(body io.Reader, length int64, most size) (status int, err error) {
	if length > 0 {
		b.body.Grow(int(min(length, smallBody)) + bytes.MinRead)
	}
	_, err = b.body.ReadFrom(io.LimitReader(body, most.bytes+1))
	switch {
	case timedOut(err):
		return http.StatusRequestTimeout, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case int64(b.body.Len()) > most.bytes:
		return http.StatusRequestEntityTooLarge, most.tooLarge()
	case count(b.body.Bytes()) > most.values:
		return http.StatusRequestEntityTooLarge, fmt.Errorf("send at most %d values", most.values)
	}
	return http.StatusOK, nil
}

// decider decides about the review in a request. An error is a review that
// makes no sense, or errUndecided.
type decider func(context.Context, *requestBuffers) (*admissionv1.AdmissionResponse, error)

// reviews answers AdmissionReviews.
func reviews(decide decider) responder {
	return func(ctx context.Context, buffers *requestBuffers) (status int, err error) {
		response, err := decide(ctx, buffers)
		if errors.Is(err, errUndecided) {
			return http.StatusInternalServerError, err
		}
		if err != nil {
			return http.StatusBadRequest, err
		}
		err = json.NewEncoder(&buffers.answer).Encode(&admissionv1.AdmissionReview{TypeMeta: reviewType(), Response: response})
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
	return func(ctx context.Context, buffers *requestBuffers) (*admissionv1.AdmissionResponse, error) {
		var review admissionv1.AdmissionReview
		if err := utiljson.Unmarshal(buffers.body.Bytes(), &review); err != nil {
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
