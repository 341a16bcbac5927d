package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/cli"
)

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// quoted matches paths of documents. Readers open a quoted path like a link.
	quoted  = regexp.MustCompile("`((?:docs|examples|charts|config)/[A-Za-z0-9_./-]+)`")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	// notInAnchors matches the characters that GitHub removes from a heading.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// documents returns the paths of all pages of the project.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			found = append(found, path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(found), 20)
	return found
}

func TestLinksHaveTargets(t *testing.T) {
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := document
			if target != "" {
				path = filepath.Join(filepath.Dir(document), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s links to %s", document, found[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(t, path), anchor, "%s links to %s", document, found[1])
		}
		for _, found := range quoted.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(root, strings.TrimRight(found[1], ".")))
			assert.NoError(t, err, "%s names %s", document, found[1])
		}
	}
}

// anchors returns the anchors of the headings of a page.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var found []string
	for _, line := range heading.FindAllStringSubmatch(string(text), -1) {
		plain := notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(line[1])), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}

var (
	quotedCommand = regexp.MustCompile("`((?:make|kubectl sidecarset) [^`\n]+)`")
	typedCommand  = regexp.MustCompile(`(?:^|\$ |\| |&& )((?:make|kubectl sidecarset) .+)`)
)

// commands returns the commands that a document contains in quotes or in a block.
func commands(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	var found []string
	for _, match := range quotedCommand.FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	blocks, err := sessions(document)
	require.NoError(t, err)
	for _, block := range blocks {
		for _, line := range block.lines {
			for _, match := range typedCommand.FindAllStringSubmatch(line, -1) {
				found = append(found, match[1])
			}
		}
	}
	return found
}

func TestCommandsExist(t *testing.T) {
	targets := makeTargets(t)
	plugin := cli.NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	plugin.InitDefaultCompletionCmd()
	checked := 0
	for _, document := range documents(t) {
		for _, command := range commands(t, document) {
			checked++
			words := strings.Fields(command)
			if words[0] == "make" {
				assertTargets(t, targets, document, words[1:])
			} else {
				assertFlags(t, plugin, document, words[2:])
			}
		}
	}
	assert.Greater(t, checked, 100)
}

var (
	rule   = regexp.MustCompile(`(?m)^([a-z][a-z0-9 /-]*):(?: |$)`)
	target = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
)

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, found := range rule.FindAllStringSubmatch(string(makefile), -1) {
		for _, name := range strings.Fields(found[1]) {
			targets[name] = true
		}
	}
	return targets
}

// assertTargets asserts that the first words are targets of the Makefile. The list of targets ends at a
// variable, a comment or a pipe.
func assertTargets(t *testing.T, targets map[string]bool, document string, words []string) {
	t.Helper()
	for i, word := range words {
		if !target.MatchString(word) {
			assert.Positive(t, i, "%s: make %s", document, strings.Join(words, " "))
			return
		}
		assert.Contains(t, targets, word, "%s: make %s", document, strings.Join(words, " "))
	}
}

func assertFlags(t *testing.T, plugin *cobra.Command, document string, words []string) {
	t.Helper()
	command, _, err := plugin.Find(words)
	if !assert.NoError(t, err, "%s: %v", document, words) {
		return
	}
	require.NotEqual(t, plugin, command, "%s: %v", document, words)
	for _, word := range words {
		switch name, long := strings.CutPrefix(word, "--"); {
		case word == "|", word == "#", strings.HasPrefix(word, ";"):
			return
		case long:
			name, _, _ = strings.Cut(strings.TrimRight(name, "])."), "=")
			found := command.Flag(name)
			assert.NotNil(t, found, "%s: kubectl sidecarset %s --%s", document, command.Name(), name)
		}
	}
}
