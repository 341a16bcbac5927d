package cli

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const twoContexts = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
current-context: here
`

func TestAnInvalidRequestTimeoutNamesItsFlag(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "kubeconfig"))
	require.NoError(t, os.WriteFile(os.Getenv("KUBECONFIG"), []byte(twoContexts), 0o600))
	cmd := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	cmd.SetArgs([]string{"list", "--request-timeout=abc"})
	require.EqualError(t, cmd.ExecuteContext(t.Context()), `--request-timeout "abc": use a duration such as 5s or 2m`)
}

// An API server counts as unreachable only if the API server does not respond.
func TestOnlyADialOrATimeoutIsAnUnreachableAPIServer(t *testing.T) {
	const unreachable = "cannot be reached"
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	run := func(ctx context.Context, kubeconfig string) error {
		config := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(config, []byte(kubeconfig), 0o600))
		cmd := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		cmd.SetArgs([]string{"list", "--kubeconfig=" + config})
		return cmd.ExecuteContext(ctx)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	discovery := map[string]string{
		"/api":                          `{"kind":"APIVersions","versions":[]}`,
		"/apis":                         `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps.kruise.io","versions":[{"groupVersion":"apps.kruise.io/v1alpha1","version":"v1alpha1"}]}]}`,
		"/apis/apps.kruise.io/v1alpha1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps.kruise.io/v1alpha1","resources":[{"name":"sidecarsets","kind":"SidecarSet"}]}`,
	}
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := discovery[r.URL.Path]; answer != "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
			return
		}
		interrupt()
		select {
		case <-r.Context().Done():
		case <-time.After(5 * time.Second):
		}
	}))
	defer silent.Close()
	at := func(address string) string { return strings.ReplaceAll(twoContexts, "http://127.0.0.1:1", address) }
	err := run(ctx, at(silent.URL))
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, "list SidecarSets: context canceled")

	late, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = run(late, at(silent.URL))
	require.EqualError(t, err, "list SidecarSets: context deadline exceeded")

	plugin := "user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /absent, interactiveMode: Never}}"
	err = run(t.Context(), strings.Replace(at("https://127.0.0.1:1"), "user: {}", plugin, 1))
	require.ErrorContains(t, err, "list SidecarSets: getting credentials: exec: ")
	require.NotContains(t, err.Error(), unreachable)

	timeout := &url.Error{Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}}
	require.ErrorContains(t, explain(timeout, "list SidecarSets"), unreachable)
	reset := &url.Error{Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}
	require.EqualError(t, explain(reset, "list SidecarSets"), "list SidecarSets: read: connection reset by peer")
}

// Each error is one line with the cause and a remedy. Commands do not wait for a server that does not exist.
func TestWrongAddressesNameCauseAndRemedy(t *testing.T) {
	const (
		contexts = " (name one with --context or --kubeconfig; kubectl config get-contexts lists the contexts)"
		where    = " (--temporal-address or TEMPORAL_ADDRESS)"
		refused  = ": the API server cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused (check that the API server runs, and that --context, --kubeconfig or KUBECONFIG selects the right cluster)"
	)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	config := filepath.Join(t.TempDir(), "kubeconfig")
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(config, []byte(twoContexts), 0o600))
	require.NoError(t, os.WriteFile(garbage, []byte("this is { garbage\n"), 0o600))
	for _, test := range []struct {
		kubeconfig, temporal string
		args                 []string
		want                 string
	}{
		{"/absent", "", []string{"list"}, "find a cluster: KUBECONFIG=/absent: no such file (correct the variable, or use --kubeconfig)"},
		{"", "", []string{"list", "--kubeconfig=/absent"}, "find a cluster: stat /absent: no such file or directory" + contexts},
		{garbage, "", []string{"list"}, "read kubeconfig " + garbage + ": it is not a kubeconfig (name another one with --kubeconfig or KUBECONFIG)"},
		{config, "", []string{"list", "--kubeconfig=" + garbage}, "read kubeconfig " + garbage + ": it is not a kubeconfig (name another one with --kubeconfig or KUBECONFIG)"},
		{config, "", []string{"list", "--context=there"}, `find a cluster: context "there" does not exist` + contexts},
		{config, "", []string{"list"}, "list SidecarSets" + refused},
		{config, "", []string{"undo", "logs"}, "get SidecarSet logs" + refused},
		{config, "http://127.0.0.1:7233", []string{"status", "logs"}, `address "http://127.0.0.1:7233" of Temporal has the scheme http: use host:port, such as 127.0.0.1:7233` + where},
		{config, "https://temporal:7233", []string{"why", "logs"}, `address "https://temporal:7233" of Temporal has the scheme https: use host:port, such as temporal:7233 with --temporal-tls` + where},
		{config, "temporal", []string{"history", "logs"}, `address "temporal" of Temporal has no port: use host:port, such as temporal:7233` + where},
		{config, "temporal", []string{"plan", "logs", "--image=agent=agent:v2"}, `address "temporal" of Temporal has no port: use host:port, such as temporal:7233` + where},
	} {
		t.Setenv("KUBECONFIG", test.kubeconfig)
		t.Setenv("TEMPORAL_ADDRESS", test.temporal)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		cmd := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		cmd.SetArgs(test.args)
		require.EqualError(t, cmd.ExecuteContext(ctx), test.want, "%v", test.args)
		cancel()
	}
}

func TestAServerThatIsNoTrustedAPIServerIsNamed(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	web, untrusted := httptest.NewServer(page), httptest.NewUnstartedServer(page)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer web.Close()
	defer untrusted.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer other.Close()
	go func() {
		for {
			connection, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write([]byte("\x00\x00\x06 no HTTP"))
			_ = connection.Close()
		}
	}()
	const noAPI = "list SidecarSets: the server is not a Kubernetes API server: "
	for server, want := range map[string]string{
		web.URL:                           noAPI,
		"http://" + other.Addr().String(): noAPI,
		strings.Replace(web.URL, "http", "https", 1): noAPI,
		untrusted.URL: "list SidecarSets: this kubeconfig does not trust the certificate of the API server: ",
	} {
		config := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(twoContexts, "http://127.0.0.1:1", server)), 0o600))
		cmd := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		cmd.SetArgs([]string{"list", "--kubeconfig=" + config})
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want, server)
	}
}

// A server such as MySQL sends data immediately. If the data arrives before the client sends the request,
// net/http returns this error.
func TestAServerThatSpeaksFirstIsNamed(t *testing.T) {
	early := &url.Error{Op: "Get", URL: "http://127.0.0.1:3306/api", Err: errors.New("readLoopPeekFailLocked: %!w(<nil>)")}
	require.ErrorContains(t, explain(early, "list SidecarSets"), "list SidecarSets: the server is not a Kubernetes API server: ")
}

// An API server quotes the errors of its connections to webhooks.
func TestAnErrorThatAnAPIServerQuotesIsNotAboutTheAPIServer(t *testing.T) {
	const conversion = "conversion webhook for apps.kruise.io/v1alpha1, Kind=SidecarSet failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"
	require.EqualError(t, explain(apierrors.NewInternalError(errors.New(conversion)), "list SidecarSets"),
		"list SidecarSets: Internal error occurred: "+conversion+"; check the webhook: kubectl sidecarset check")
	quoted := apierrors.NewInternalError(errors.New("server gave HTTP response to HTTPS client"))
	require.EqualError(t, explain(quoted, "list SidecarSets"), "list SidecarSets: "+quoted.Error())
	expired := &url.Error{Err: errors.New("tls: failed to verify certificate: x509: certificate has expired or is not yet valid")}
	require.ErrorContains(t, explain(expired, "list SidecarSets"), "the certificate of the API server is not valid at this time: ")
}

func TestAWrongTemporalAddressStopsOnlyCommandsThatNeedTemporal(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	s, _, _ := fourRevisionsCluster(t)
	at := func(address string, args ...string) []string {
		return append(args, "--temporal-payload-key-dir=", "--temporal-address="+address)
	}
	require.NoError(t, s.run(at("temporal", "diff", "logs", "1")...).err)
	require.NoError(t, s.run(at("temporal", "undo", "logs", "--dry-run=client")...).err)
	const refused = "Temporal at 127.0.0.1:1, namespace default: connection refused (start the server, or correct --temporal-address or TEMPORAL_ADDRESS)"
	require.EqualError(t, s.run(at("127.0.0.1:1", "pause", "logs")...).err, "pause the rollout of SidecarSet logs: "+refused+
		"; to pause by the spec, which takes effect when Temporal responds: "+pausePatch)
	for _, update := range []string{"resume", "approve", "promote", "abort", "retry"} {
		require.EqualError(t, s.run(at("127.0.0.1:1", update, "logs")...).err, update+" the rollout of SidecarSet logs: "+refused+
			"; through the operator: kubectl sidecarset --temporal-address=127.0.0.1:1 "+update+" logs --via-cluster")
	}
	require.ErrorContains(t, s.run(at("127.0.0.1:1", "promote", "logs", "--full", "--step=2")...).err, "kubectl sidecarset --temporal-address=127.0.0.1:1 promote logs --full --step 2 --via-cluster")
	require.Contains(t, s.shows(at("127.0.0.1:1", "history", "logs")...), "\nRuns are not listed: "+refused+"\n")
}

func TestASystemNamespaceWithoutRevisionsIsNamed(t *testing.T) {
	s, _, _ := fourRevisionsCluster(t)
	for _, args := range [][]string{{"history", "logs"}, {"undo", "logs"}, {"undo", "logs", "--to-revision=1"}, {"diff", "logs", "1"}} {
		require.EqualError(t, s.run(append(args, "--system-namespace=other")...).err, "namespace other has no revision of SidecarSet logs "+
			"(name the namespace of the operator with --system-namespace; kubectl sidecarset --system-namespace=other check checks the operator)", "%v", args)
	}
}
