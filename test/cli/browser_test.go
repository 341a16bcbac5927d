//go:build browser

package cli

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/test/browser"
)

var screenshots = flag.String("screenshots", "", "`folder` that screenshots are written to")

// lowContrast lists the texts of a page whose contrast is below 4.5:1, which WCAG 2 AA requires.
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

// accessible asserts the contrast of a page in both color schemes, its landmarks, and the headers of its tables.
func accessible(t *testing.T, page context.Context) {
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

func TestThePagesInABrowser(t *testing.T) {
	defer staged(t, "watched", `[{name: canary, upTo: 1, bake: 1h}, {upTo: 50%, bake: 30m}, {upTo: 100%, approval: {}}]`)()
	p := startPages(t, "127.0.0.1")
	setImage(t, "watched", "agent:v2")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	page := browser.Open(ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(p.url)))
	browser.AwaitTexts(t, page, "SidecarSets of this cluster", "Baking (step 1 of 3, ")
	accessible(t, page)

	_, err := chromedp.RunResponse(page, chromedp.Click(`a[href="/sidecarsets/watched"]`))
	require.NoError(t, err)
	browser.AwaitTexts(t, page, "SidecarSet watched", "1 (canary)", "all pods, needs approval")
	accessible(t, page)
	browser.Screenshot(t, page, *screenshots, "ui-sidecarset.png")

	// The page updates without a navigation.
	_, err = chromedp.Run(page, chromedp.Evaluate[bool](`window.loadedOnce = true`))
	require.NoError(t, err)
	shows(t, "pause", "watched", "--reason=look")
	browser.AwaitTexts(t, page, "by admin: look", "kubectl sidecarset resume watched")
	loaded, err := chromedp.Run(page, chromedp.Evaluate[bool](`window.loadedOnce`))
	require.NoError(t, err)
	assert.True(t, loaded)

	// The keyboard reaches the button, which stops updates.
	require.NoError(t, chromedp.Do(page, chromedp.Focus("#pause"), chromedp.KeyEvent(" ")))
	_, err = chromedp.Run(page, chromedp.Poll[bool](`document.getElementById("pause").getAttribute("aria-pressed") === "true"`))
	require.NoError(t, err)

	_, err = chromedp.Call(page, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	_, err = chromedp.RunResponse(page, chromedp.Reload())
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(page, chromedp.WaitNotVisible("#pause")))
	heading, err := chromedp.Run(page, chromedp.Text("h1"))
	require.NoError(t, err)
	assert.Equal(t, "SidecarSet watched", heading)
}
