package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A webhook of another product may reject with only a code and a message.
func TestARejectionWithoutCausesIsShown(t *testing.T) {
	assert.Equal(t, "no", causesOf(metav1.Status{Message: "no"}))
	assert.Equal(t, "no", causesOf(metav1.Status{Message: "no", Details: &metav1.StatusDetails{}}))
	causes := []metav1.StatusCause{{Field: "spec.steps", Message: "bad"}, {Field: "spec.gates", Message: "worse"}}
	assert.Equal(t, "spec.steps: bad; spec.gates: worse", causesOf(metav1.Status{Message: "no", Details: &metav1.StatusDetails{Causes: causes}}))
}
