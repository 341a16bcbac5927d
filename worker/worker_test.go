package worker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/temporal"
)

func TestTheLogNamesTheCauseWhileTemporalCannotBeUsed(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	flags := temporal.Flags{Address: web.Listener.Addr().String(), TLS: new(true)}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	options, err := flags.Options(envconfig.EnvLookupOS)
	require.NoError(t, err)
	client, err := temporal.NewLazyClient(options, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(client.Close)

	lines := make(chan string, 100)
	h := &host{client: client, options: Options{Temporal: options, MaxConcurrentSelects: 1, MaxConcurrentPatches: 1}, taskQueue: "queue", activities: &stub{},
		log: funcr.New(func(_, line string) { lines <- line }, funcr.Options{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.run(ctx) }()
	line := <-lines
	cancel()
	require.NoError(t, <-ended)
	assert.Contains(t, line, `"msg"="Temporal cannot be used; retrying"`)
	assert.Contains(t, line, `"cause"="the server does not speak TLS" "remedy"="turn it off with --temporal-tls=false, or correct the address"`)
}

// The log contains the flags of the fleet. The log contains the text of an error only if the text cannot
// contain credentials.
func TestSpec12_9_TheLogNamesTheFlagsOfTheFleet(t *testing.T) {
	var line string
	h := &host{fleet: true, log: funcr.New(func(_, text string) { line = text }, funcr.Options{})}
	h.options.Fleet.Temporal = temporal.Options{Address: "hub:7233", Namespace: "fleet"}
	h.logUnavailable(serviceerror.NewPermissionDenied("no access for key abc", ""), time.Second)
	assert.Contains(t, line, `"msg"="the Temporal of the fleet cannot be used; retrying" "after"="1s" "address"="hub:7233" "namespace"="fleet" "reason"="permission" "cause"="permission denied (`)
	assert.NotContains(t, line, "abc")
	h.logUnavailable(serviceerror.NewNamespaceNotFound("fleet"), time.Second)
	assert.Contains(t, line, "correct --fleet-temporal-namespace")
	h.logUnavailable(serviceerror.NewUnavailable("connection refused"), time.Second)
	assert.Contains(t, line, "correct --fleet-temporal-address")
	assert.Contains(t, line, `"error"="connection refused"`)
}

// The SDK stops a worker after stopTimeout although activities still run.
func TestSpec7_5_AWorkerLeadsUntilNoActivityWritesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{log: logr.Discard()}
		answer, ended := make(chan struct{}), make(chan error, 1)
		evict := counted(&h.writes, func(context.Context, int) (int, error) {
			<-answer
			return 0, nil
		})
		go func() { _, _ = evict(t.Context(), 0) }()
		synctest.Wait()
		stopped, stop := context.WithCancel(t.Context())
		stop()
		go func() { ended <- h.upgrade(stopped) }()
		synctest.Wait()
		assert.Empty(t, ended)
		close(answer)
		require.NoError(t, <-ended)
	})
}
