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

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Open opens a page in a browser without a window.
func Open(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "apt-get install chromium")
	// Root may not use the sandbox.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1360, 1000))
	allocating, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	page, end := chromedp.NewContext(allocating)
	t.Cleanup(end)
	return page
}

// shown returns the text of a page. Temporal's UI renders Markdown in separate frames.
const shown = `[document, ...Array.from(document.querySelectorAll("iframe"), f => f.contentDocument)].map(d => d?.body?.innerText).join("\n")`

// AwaitTexts waits until the page shows each text.
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

// Screenshot writes the page to a file. An empty folder writes no file.
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
