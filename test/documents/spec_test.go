package documents

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const spec = "docs/SPEC.md"

var (
	// specRule matches a rule with the section and the number of the rule.
	specRule = regexp.MustCompile(`(?m)^- \*\*((?:\d+\.)*\d+)\.(\d+)\*\* \S`)
	// specSection matches a numbered heading.
	specSection = regexp.MustCompile(`(?m)^#{2,3} ((?:\d+\.)*\d+)\.? `)
	// specDifference matches a row of the table of differences.
	specDifference = regexp.MustCompile(`(?m)^\| ([0-9][0-9., –]*) \| `)
	specID         = regexp.MustCompile(`\d+(?:\.\d+)+`)
	// cited matches a section or a rule in the format of code and documents.
	cited = regexp.MustCompile(`SPEC(?:\.md` + "`" + `)? §(\d+(?:\.\d+)*)|Spec(\d+(?:_\d+)*)_`)
)

// specIDs returns the numbers of the rules and the sections of docs/SPEC.md.
func specIDs(t *testing.T) map[string]bool {
	t.Helper()
	text := page(t, spec)
	ids := map[string]bool{}
	for _, found := range specSection.FindAllStringSubmatch(text, -1) {
		ids[found[1]] = true
	}
	for _, found := range specRule.FindAllStringSubmatch(text, -1) {
		ids[found[1]+"."+found[2]] = true
	}
	return ids
}

func TestSpecRulesAreNumberedWithoutGaps(t *testing.T) {
	last := map[string]int{}
	sections := specIDs(t)
	for _, found := range specRule.FindAllStringSubmatch(page(t, spec), -1) {
		number, err := strconv.Atoi(found[2])
		require.NoError(t, err)
		assert.True(t, sections[found[1]], "rule %s.%s has a section", found[1], found[2])
		assert.Equal(t, last[found[1]]+1, number, "the number of rule %s.%s", found[1], found[2])
		last[found[1]] = number
	}
	assert.Greater(t, len(last), 30)
}

func TestSpecLinesFitTheScreen(t *testing.T) {
	for i, line := range strings.Split(page(t, spec), "\n") {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 120, "%s:%d", spec, i+1)
	}
}

func TestSpecDifferencesNameTheirRules(t *testing.T) {
	ids := specIDs(t)
	rows := specDifference.FindAllStringSubmatch(page(t, spec), -1)
	require.Greater(t, len(rows), 40)
	for _, row := range rows {
		for _, id := range specID.FindAllString(row[1], -1) {
			assert.True(t, ids[id], "rule %s of the differences", id)
		}
	}
}

func TestCitedRulesExist(t *testing.T) {
	ids, found := specIDs(t), 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range cited.FindAllStringSubmatch(string(text), -1) {
			found++
			id := match[1] + strings.ReplaceAll(match[2], "_", ".")
			assert.True(t, ids[id], "%s cites %s", path, match[0])
		}
		return err
	})
	require.NoError(t, err)
	assert.Greater(t, found, 200)
}
