//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Open starts a browser without a window, and returns the context of a page.
func Open(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "apt-get install chromium")
	// Chromium does not start as root with its sandbox, so the sandbox is disabled.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1360, 1000))
	allocating, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	page, end := chromedp.NewContext(allocating)
	t.Cleanup(end)
	return page
}

// shown is an expression whose value is the text of a page. The UI of Temporal renders Markdown in separate
// frames.
const shown = `[document, ...Array.from(document.querySelectorAll("iframe"), f => f.contentDocument)].map(d => d?.body?.innerText).join("\n")`

// AwaitTexts waits until the page shows all texts.
func AwaitTexts(t *testing.T, page context.Context, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := chromedp.Run(page, chromedp.Poll[bool](fmt.Sprintf("(%s).includes(%q)", shown, text), chromedp.WithPollingTimeout(20*time.Second)))
		if err != nil {
			instead, _ := chromedp.Run(page, chromedp.Evaluate[string](shown))
			require.NoError(t, err, "the page does not show %q but:\n%s", text, instead)
		}
	}
}

// Screenshot writes an image of the page to the file name in folder. If folder is empty, Screenshot writes no
// file.
func Screenshot(t *testing.T, page context.Context, folder, name string) {
	t.Helper()
	png, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NotEmpty(t, png)
	if folder == "" {
		return
	}
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), png, 0o644))
}

// lowContrast is an expression that lists the texts of a page whose contrast is below 4.5:1. WCAG 2 AA
// requires this contrast.
const lowContrast = `(() => {
  const light = (color) => color.match(/[\d.]+/g).slice(0, 3)
    .map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const back = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility() && e.tagName !== "BUTTON" && [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()))
    .filter((e) => { const text = light(getComputedStyle(e).color); return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05) < 4.5; })
    .map((e) => e.textContent.trim());
})()`

// AssertAccessible asserts the contrast of a page in both color schemes, the landmarks, and the headers of
// tables.
func AssertAccessible(t *testing.T, page context.Context) {
	t.Helper()
	for _, scheme := range []string{"dark", "light"} {
		_, err := chromedp.Call(page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		require.NoError(t, err)
		low, err := chromedp.Run(page, chromedp.Evaluate[[]string](lowContrast))
		require.NoError(t, err)
		assert.Empty(t, low, scheme)
	}
	for missing, expression := range map[string]string{
		"language":                     `document.documentElement.lang === "en"`,
		"landmarks":                    `document.querySelectorAll("main, nav[aria-label], header").length === 3`,
		"one heading of the page":      `document.querySelectorAll("h1").length === 1`,
		"caption of a table":           `[...document.querySelectorAll("table")].every((table) => table.caption)`,
		"scope of a header of a table": `[...document.querySelectorAll("th")].every((th) => th.scope)`,
	} {
		has, err := chromedp.Run(page, chromedp.Evaluate[bool](expression))
		require.NoError(t, err)
		assert.True(t, has, missing)
	}
}
