package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every file and directory that a document mentions exists.
func TestDocumentsNamePlacesThatExist(t *testing.T) {
	const root = "../.."
	documents, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		documents = append(documents, filepath.Join(root, name))
	}
	named := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, place := range places(t, root, string(text)) {
			named++
			_, err := os.Stat(filepath.Join(root, place))
			assert.NoError(t, err, "%s names %s", document, place)
		}
	}
	require.Greater(t, named, 50)
}

var (
	quoted = regexp.MustCompile("`[^`\n]+`")
	// A word with other characters is a pattern, an address or an assignment.
	plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*/?$`)
)

// places returns the quoted words that begin with a directory of this project.
func places(t *testing.T, root, text string) []string {
	t.Helper()
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	folders := map[string]bool{}
	for _, entry := range entries {
		folders[entry.Name()] = entry.IsDir() && entry.Name() != "bin" && !strings.HasPrefix(entry.Name(), ".")
	}
	var found []string
	for _, phrase := range quoted.FindAllString(text, -1) {
		for word := range strings.FieldsSeq(strings.Trim(phrase, "`")) {
			word = strings.TrimPrefix(word, "./")
			first, _, nested := strings.Cut(word, "/")
			if plain.MatchString(word) && nested && folders[first] {
				found = append(found, word)
			}
		}
	}
	return found
}
