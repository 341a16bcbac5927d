//go:build browser

package integration

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
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
	"github.com/outrigger/outrigger/test/browser"
)

var screenshots = flag.String("screenshots", "", "`folder` that screenshots are written to")

// The link in the status opens a page that shows each batch. The tab User Metadata of the page shows the
// progress of the run, and the rejected pods with their reasons.
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

	page := browser.Open(s.ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(set.Status.Rollout.URL)))
	browser.AwaitTexts(t, page, "Running", "choose batch 1", "upgrade batch 1: 2 pods, and of 10 more as slots become free")
	browser.Screenshot(t, page, *screenshots, "run-timeline.png")

	address, err := chromedp.Run(page, chromedp.Location())
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(address[:strings.LastIndex(address, "/")]+"/user-metadata")))
	browser.AwaitTexts(t, page,
		fmt.Sprintf("%s generation %d: side=side:v2", s.name, set.Generation),
		fmt.Sprintf("generation %d", set.Generation),
		"11 of 12 pods updated", "1 to go",
		fmt.Sprintf("%s/%s", s.name, stuck), "Invalid",
	)
	browser.Screenshot(t, page, *screenshots, "run-details.png")

	s.allowing()
	s.await(observer.Converged(12))
	s.awaitPhase(protocol.PhaseComplete)
}

// The page of the fleet shows the cluster in which content stopped, and the reason.
func TestThePageOfAFleetInABrowser(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	canary, rest, smoke := startFleet(ctx, t)
	address, err := canary.cluster.StartUI(ctx, "--fleet")
	require.NoError(t, err)
	page := browser.Open(ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(address)))
	_, err = chromedp.RunResponse(page, chromedp.Click(`nav a[href="/fleet"]`))
	require.NoError(t, err)
	browser.AwaitTexts(t, page, "edge-proxy", "Through", "FleetPolicy edge")
	browser.AssertAccessible(t, page)

	// The page updates without a navigation.
	smoke.fails.Store(true)
	rest.upgradeTo("side:v2")
	canary.upgradeTo("side:v2")
	awaitFleet(ctx, t, protocol.FleetFailed)
	canary.awaitReason(v1alpha1.ReasonQuarantined)
	browser.AwaitTexts(t, page, "Failed: gate smoke of stage canary failed: no connection", "RolledBack", "Pending")
	browser.AssertAccessible(t, page)
	browser.Screenshot(t, page, *screenshots, "ui-fleet.png")
}

// awaitUI waits until the UI reaches the server of Temporal, which starts at the same time. A page that is
// loaded too early shows an error and does not recover.
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
	page := browser.Open(ctx, t)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(strings.Join([]string{
		"http://" + uiAddress, "namespaces", sdk.DefaultNamespace, "workflows", url.PathEscape(r.run.GetID()), r.run.GetRunID(), "history",
	}, "/"))))
	browser.AwaitTexts(t, page, sealedWords)
}
