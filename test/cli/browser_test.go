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

func TestThePagesInABrowser(t *testing.T) {
	defer staged(t, "watched", `[{name: canary, upTo: 1, bake: 1h}, {upTo: 50%, bake: 30m}, {upTo: 100%, approval: {}}]`)()
	p := startPages(t, "127.0.0.1")
	setImage(t, "watched", "agent:v2")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	page := browser.Open(ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(p.url)))
	browser.AwaitTexts(t, page, "SidecarSets of this cluster", "Baking (step 1 of 3, ")
	browser.AssertAccessible(t, page)

	_, err := chromedp.RunResponse(page, chromedp.Click(`a[href="/sidecarsets/watched"]`))
	require.NoError(t, err)
	browser.AwaitTexts(t, page, "SidecarSet watched", "1 (canary)", "all pods, needs approval")
	browser.AssertAccessible(t, page)
	browser.Screenshot(t, page, *screenshots, "ui-sidecarset.png")

	// The page updates without a navigation.
	_, err = chromedp.Run(page, chromedp.Evaluate[bool](`window.loadedOnce = true`))
	require.NoError(t, err)
	shows(t, "pause", "watched", "--reason=look")
	browser.AwaitTexts(t, page, "by admin: look", "kubectl sidecarset resume watched")
	loaded, err := chromedp.Run(page, chromedp.Evaluate[bool](`window.loadedOnce`))
	require.NoError(t, err)
	assert.True(t, loaded)

	// The button can be pressed with the keyboard, and stops updates.
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
