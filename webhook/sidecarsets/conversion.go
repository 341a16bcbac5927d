package sidecarsets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/outrigger/outrigger/internal/conversion"
	"github.com/outrigger/outrigger/webhook/server"
)

var errNothingToConvert = errors.New("the ConversionReview has no request")

// Convert answers ConversionReviews.
func Convert(_ context.Context, buffers *server.Buffers) (status int, err error) {
	var review apiextensionsv1.ConversionReview
	if err := json.Unmarshal(buffers.Body.Bytes(), &review); err != nil {
		return http.StatusBadRequest, fmt.Errorf("decode the ConversionReview: %w", err)
	}
	if review.Request == nil {
		return http.StatusBadRequest, errNothingToConvert
	}
	answer := apiextensionsv1.ConversionReview{TypeMeta: review.TypeMeta, Response: converted(review.Request)}
	if err := json.NewEncoder(&buffers.Answer).Encode(answer); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("encode the ConversionReview: %w", err)
	}
	return http.StatusOK, nil
}

func converted(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, object := range request.Objects {
		raw, err := convertRaw(object.Raw, request.DesiredAPIVersion)
		if err != nil {
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			response.ConvertedObjects = nil
			return response
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: raw})
	}
	return response
}

func convertRaw(raw []byte, toAPIVersion string) ([]byte, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("decode the object to convert: %w", err)
	}
	if err := conversion.Convert(object, toAPIVersion); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the converted object: %w", err)
	}
	return encoded, nil
}
