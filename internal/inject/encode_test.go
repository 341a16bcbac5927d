package inject

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStringsAreEncodedLikeAnyOther(t *testing.T) {
	for _, value := range []string{
		"", "plain", `"`, `\`, `{"a":"b\\"}`, `ends with "`, "<&>", "tab\t", "\x7f", "ü", "\u2028", "\xff", "a\x00b",
	} {
		encoded, err := appendString([]byte("x"), value)
		require.NoError(t, err)
		var read string
		require.NoError(t, json.Unmarshal(encoded[1:], &read), value)
		usual, err := json.Marshal(value)
		require.NoError(t, err)
		assert.JSONEq(t, string(usual), string(encoded[1:]), value)
	}
}
