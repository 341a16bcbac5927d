package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func annotated(hashes, states, active string) map[string]string {
	return map[string]string{
		v1alpha1.HashAnnotation: hashes, v1alpha1.HashWithoutImageAnnotation: hashes,
		v1alpha1.InPlaceUpdateStateAnnotation: states, v1alpha1.WorkingHotUpgradeContainerAnnotation: active,
	}
}

func TestReaderEqualsRead(t *testing.T) {
	var reader Reader
	for range 2 {
		for _, annotations := range []map[string]string{
			nil,
			annotated(`{"a":{"hash":"1"}}`, `{"a":{"revision":"1"}}`, `{"side":"side-1"}`),
			annotated(`{"a":{"hash":"1"}}`, `{"a":{"revision":"2"}}`, `{"side":"side-1"}`),
			annotated(`{"a":{"hash":"1"}}`, `{"a":{"revision":"1"}}`, `{"side":"side-2"}`),
			annotated(`{"a":{"hash":"2"}}`, "", ""),
			annotated(`{"a":{"hash":"`+strings.Repeat("x", maxRecordBytes)+`"}}`, "", ""),
		} {
			want, err := Read(annotations)
			require.NoError(t, err)
			got, err := reader.Read(annotations)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	}
	assert.Len(t, reader.known, 5, "a long one is not remembered")
	for _, broken := range []map[string]string{annotated("x", "", ""), annotated("", "x", ""), annotated("", "", "x")} {
		for range 2 {
			_, err := reader.Read(broken)
			assert.ErrorContains(t, err, "annotation ")
		}
	}
}

func TestAReaderDecodesOnceAndRemembersSoMany(t *testing.T) {
	var reader Reader
	one := annotated(`{"a":{"hash":"1"}}`, "", "")
	first, err := reader.Read(one)
	require.NoError(t, err)
	again, err := reader.Read(one)
	require.NoError(t, err)
	assert.Same(t, first, again)
	for i := range 2 * maxRecords {
		_, err := reader.Read(annotated(fmt.Sprintf(`{"a":{"hash":"%d"}}`, i), "", ""))
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, len(reader.known), maxRecords)
}
