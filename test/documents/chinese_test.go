package documents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chinese is the directory of the Chinese pages. A Chinese page has the same file name as the English page.
const chinese = "docs/zh"

// TestChinesePagesMatchEnglishPages compares commands, output, rows of tables and sections. Therefore, the
// tests of the commands in the English guides also cover the Chinese guides.
func TestChinesePagesMatchEnglishPages(t *testing.T) {
	pages := chinesePages(t)
	require.Greater(t, len(pages), 8)
	for _, name := range pages {
		english := filepath.Join("docs", name)
		translation := filepath.Join(chinese, name)
		if name == "README.md" || name == "SECURITY.md" {
			english = name
		}
		source, translated := page(t, english), page(t, translation)
		assert.Contains(t, linesUpTo(source, 4), "[中文]("+relative(t, english, translation)+")", "%s links to %s at its top", english, translation)
		assert.Contains(t, linesUpTo(translated, 4), "[English]("+relative(t, translation, english)+")", "%s links to %s at its top", translation, english)
		if name == "README.md" { // The Chinese README has half of the content of the English README, and an index.
			whole, half := outlineOf(source), outlineOf(translated)
			assert.Subset(t, whole.blocks, half.blocks, "%s has blocks that %s lacks", translation, english)
			assert.Subset(t, whole.quoted, half.quoted, "%s has quotes that %s lacks", translation, english)
			continue
		}
		for _, difference := range differences(source, translated) {
			assert.Fail(t, fmt.Sprintf("%s and %s differ: %s", english, translation, difference))
		}
		for _, named := range regexp.MustCompile("`docs/([a-z-]+\\.md)`").FindAllStringSubmatch(translated, -1) {
			assert.NotContains(t, pages, named[1], "%s names docs/%s, which has a Chinese page", translation, named[1])
		}
	}
}

// TestEveryTranslationIsLinked asserts that the index links to each page.
func TestEveryTranslationIsLinked(t *testing.T) {
	index := page(t, filepath.Join(chinese, "README.md"))
	for _, name := range chinesePages(t) {
		if name != "README.md" {
			assert.Contains(t, index, "]("+name+")", "the index %s/README.md", chinese)
		}
	}
}

func chinesePages(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, chinese))
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(filepath.Dir(from), to)
	require.NoError(t, err)
	return filepath.ToSlash(path)
}

func linesUpTo(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// outline contains the parts of a page that a translation does not change.
type outline struct {
	// headings contains the levels of the headings. The level of ## is 2.
	headings []int
	// tables contains the number of rows of each table.
	tables []int
	// blocks contains the texts of the fenced blocks. For a diagram, the text is the number of lines.
	blocks []string
	// quoted contains the distinct texts between backquotes, sorted.
	quoted []string
}

var quotedText = regexp.MustCompile("`[^`\n]+`")

// outlineOf returns the outline of a page. Paths of Chinese pages are replaced with the paths of the English
// pages.
func outlineOf(text string) outline {
	var found outline
	inTable := false
	for _, line := range strings.Split(prose(text), "\n") {
		isRow := strings.HasPrefix(line, "|")
		switch level := len(line) - len(strings.TrimLeft(line, "#")); {
		case level > 0 && strings.HasPrefix(line[level:], " "):
			found.headings = append(found.headings, level)
		case isRow && inTable:
			found.tables[len(found.tables)-1]++
		case isRow:
			found.tables = append(found.tables, 1)
		}
		inTable = isRow
		for _, quote := range quotedText.FindAllString(line, -1) {
			found.quoted = append(found.quoted, strings.Replace(quote, chinese+"/", "docs/", 1))
		}
	}
	slices.Sort(found.quoted)
	found.quoted = slices.Compact(found.quoted)
	for _, block := range sessionsIn(text) {
		content := strings.Join(block.lines, "\n")
		if block.language == "mermaid" {
			content = fmt.Sprintf("%d lines", len(block.lines))
		}
		found.blocks = append(found.blocks, block.language+"\n"+content)
	}
	return found
}

// prose returns a page without its fenced blocks.
func prose(text string) string {
	var kept []string
	open := false
	for _, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if !fence && !open {
			kept = append(kept, line)
		}
		open = open != fence
	}
	return strings.Join(kept, "\n")
}

// differences returns the differences between the outlines of a page and its translation.
func differences(source, translated string) []string {
	english, other := outlineOf(source), outlineOf(translated)
	var found []string
	if !slices.Equal(english.headings, other.headings) {
		found = append(found, fmt.Sprintf("levels of headings %v, %v", english.headings, other.headings))
	}
	if !slices.Equal(english.tables, other.tables) {
		found = append(found, fmt.Sprintf("rows of tables %v, %v", english.tables, other.tables))
	}
	if len(english.blocks) != len(other.blocks) {
		found = append(found, fmt.Sprintf("%d blocks, %d", len(english.blocks), len(other.blocks)))
	}
	for i := range min(len(english.blocks), len(other.blocks)) {
		if english.blocks[i] != other.blocks[i] {
			found = append(found, fmt.Sprintf("block %d:\n%s\n---\n%s", i+1, english.blocks[i], other.blocks[i]))
		}
	}
	for _, quote := range english.quoted {
		if !slices.Contains(other.quoted, quote) {
			found = append(found, quote+" is in the English page alone")
		}
	}
	for _, quote := range other.quoted {
		if !slices.Contains(english.quoted, quote) {
			found = append(found, quote+" is in the Chinese page alone")
		}
	}
	return found
}

func TestDriftIsFound(t *testing.T) {
	const english = "# A\n\n`a b`, `docs/x.md`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```console\n$ a\n# no heading\n```\n\n```mermaid\none\n```\n"
	same := strings.NewReplacer("# A", "# 甲", "`docs/x.md`", "`docs/zh/x.md`", "| a |", "| 甲 |", "one", "一").Replace(english)
	assert.Empty(t, differences(english, same))
	for name, c := range map[string]struct{ was, is, want string }{
		"a section more":   {"`a b`", "## 乙\n\n`a b`", "levels of headings [1], [1 2]"},
		"another level":    {"# 甲", "## 甲", "levels of headings [1], [2]"},
		"a row less":       {"| 1 | 2 |\n", "", "rows of tables [3], [2]"},
		"a command":        {"$ a", "$ b", "block 1:\nconsole\n$ a\n# no heading\n---\nconsole\n$ b\n# no heading"},
		"a comment":        {"# no heading", "# 不是标题", "block 1:\nconsole\n$ a\n# no heading\n---\nconsole\n$ a\n# 不是标题"},
		"a language":       {"```console", "```yaml", "block 1:\nconsole\n$ a\n# no heading\n---\nyaml\n$ a\n# no heading"},
		"a diagram's line": {"一", "一\n二", "block 2:\nmermaid\n1 lines\n---\nmermaid\n2 lines"},
		"a block less":     {"```mermaid\n一\n```\n", "", "2 blocks, 1"},
		"a quote left out": {"`a b`", "甲", "`a b` is in the English page alone"},
		"a quote more":     {"`a b`", "`a b` `c`", "`c` is in the Chinese page alone"},
	} {
		require.Contains(t, same, c.was, name)
		assert.Equal(t, []string{c.want}, differences(english, strings.Replace(same, c.was, c.is, 1)), name)
	}
}
