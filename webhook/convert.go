package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/outrigger/outrigger/internal/conversion"
)

// largestReview bounds a ConversionReview, in bytes. Most hold one object, which
// etcd limits to 1.5 MiB; a page of a list can hold 500.
const largestReview = 32 << 20

// convert answers the API server's ConversionReviews.
func convert(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	err := json.NewDecoder(r.Body).Decode(&review)
	if err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("want a ConversionReview with a request: %v", err), http.StatusBadRequest)
		return
	}
	answer := apiextensionsv1.ConversionReview{TypeMeta: review.TypeMeta, Response: converted(review.Request)}
	w.Header().Set("Content-Type", "application/json")
	// Who hung up needs no answer.
	_ = json.NewEncoder(w).Encode(answer)
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
		return nil, fmt.Errorf("read the object to convert: %w", err)
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
