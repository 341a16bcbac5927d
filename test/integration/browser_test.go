//go:build browser

package integration

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

var screenshots = flag.String("screenshots", "", "`folder` that the pages of a run in Temporal's web UI are written to")

// The page that the link in status opens shows what each batch was, and its tab User
// Metadata the progress of the run, and the rejected pods with their reasons.
func TestWebUI(t *testing.T) {
	s := newScenario(t, 12, nil)
	stuck := s.pods()[0].Name
	s.rejecting(stuck, "side")
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated == 11 && v.InFlight == 0 })
	set := s.awaitSet("the link to the run", func(set *v1alpha1.SidecarSet) bool { return set.Status.Rollout != nil && set.Status.Rollout.URL != "" })
	s.awaitStatus("the run to have tried the rejected pod", func(status protocol.RolloutStatus) bool {
		return status.Phase == protocol.PhaseProgressing && status.RejectedWrites > 0 && status.Counts.Remaining == 1
	})

	page := newBrowser(s.ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(set.Status.Rollout.URL)))
	awaitTexts(t, page, "Running", "choose batch 1", "upgrade batch 1: 2 pods, and of 10 more as slots become free")
	writeScreenshot(t, page, "run-timeline.png")

	address, err := chromedp.Run(page, chromedp.Location())
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(address[:strings.LastIndex(address, "/")]+"/user-metadata")))
	awaitTexts(t, page,
		fmt.Sprintf("%s generation %d: side=side:v2", s.name, set.Generation),
		fmt.Sprintf("generation %d", set.Generation),
		"11 of 12 pods updated", "1 to go",
		fmt.Sprintf("%s/%s", s.name, stuck), "Invalid",
	)
	writeScreenshot(t, page, "run-details.png")

	s.allowing()
	s.await(observer.Converged(12))
	s.awaitPhase(protocol.PhaseComplete)
}

// newBrowser opens a page in a browser without a window.
func newBrowser(ctx context.Context, t *testing.T) context.Context {
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

// awaitUI waits until the UI reaches its server, which has started at the same moment. A page
// that is loaded earlier shows an error, and stays so.
func awaitUI(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	for _, path := range []string{"settings", "cluster-info", "system-info", "namespaces", "namespaces/default", "namespaces/default/search-attributes"} {
		require.Eventually(t, func() bool {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/"+path, nil)
			require.NoError(t, err)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false
			}
			return response.Body.Close() == nil && response.StatusCode == http.StatusOK
		}, 30*time.Second, 100*time.Millisecond, path)
	}
}

// awaitTexts waits until the page shows each text.
func awaitTexts(t *testing.T, page context.Context, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := chromedp.Run(page, chromedp.Poll[bool](fmt.Sprintf("(%s).includes(%q)", shown, text), chromedp.WithPollingTimeout(20*time.Second)))
		if err != nil {
			instead, _ := chromedp.Run(page, chromedp.Evaluate[string](shown))
			require.NoError(t, err, "the page does not show %q but:\n%s", text, instead)
		}
	}
}

func writeScreenshot(t *testing.T, page context.Context, name string) {
	t.Helper()
	png, err := chromedp.Run(page, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NotEmpty(t, png)
	if *screenshots == "" {
		return
	}
	require.NoError(t, os.MkdirAll(*screenshots, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(*screenshots, name), png, 0o644))
}

func TestTheWebUIReadsEncryptedRunsThroughTheCodecServer(t *testing.T) {
	codecAddress, uiAddress := freeAddress(t), freeAddress(t)
	r := startSealedRun(t, func(o *testsuite.DevServerOptions) {
		o.EnableUI, o.UIPort = true, uiAddress[strings.LastIndex(uiAddress, ":")+1:]
		o.ExtraArgs = []string{"--ui-ip", "127.0.0.1", "--ui-codec-endpoint", "http://" + codecAddress}
	})
	r.serveCodec(codecAddress, "--cors-origin=http://"+uiAddress)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	awaitUI(ctx, t, uiAddress)
	page := newBrowser(ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(strings.Join([]string{
		"http://" + uiAddress, "namespaces", sdk.DefaultNamespace, "workflows", url.PathEscape(r.run.GetID()), r.run.GetRunID(), "history",
	}, "/"))))
	awaitTexts(t, page, sealedWords)
}
