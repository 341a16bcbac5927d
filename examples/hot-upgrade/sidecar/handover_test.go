package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twins contains the address and the directory of servers that run one after the other.
type twins struct {
	t       *testing.T
	folder  string
	address string
}

func newTwins(t *testing.T) *twins {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	return &twins{t: t, folder: t.TempDir(), address: free.Addr().String()}
}

func (w *twins) handover(version int) handover {
	return handover{folder: w.folder, version: strconv.Itoa(version)}
}

// start runs a server until end is called. end returns the error of the server.
func (w *twins) start(version int, warmUp time.Duration) (end func() error) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, options{handover: w.handover(version), address: w.address, release: "r", warmUp: warmUp})
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

func (w *twins) ask(client *http.Client) (string, error) {
	response, err := client.Get("http://" + w.address)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
}

func TestNoRequestFailsWhileTwinsAlternate(t *testing.T) {
	w := newTwins(t)
	end := w.start(1, 0)
	require.NoError(t, w.handover(1).awaitOwn(t.Context()))

	var asked atomic.Int64
	asking, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, keepAlive := range []bool{true, false, false} {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keepAlive}}
			defer client.CloseIdleConnections()
			for asking.Err() == nil {
				_, err := w.ask(client)
				assert.NoError(t, err)
				asked.Add(1)
			}
		})
	}
	for version := 2; version <= 20; version++ {
		next := w.start(version, 0)
		require.NoError(t, w.handover(version).awaitOwn(t.Context()))
		before := asked.Load()
		require.Eventually(t, func() bool { return asked.Load() > before+10 }, time.Minute, time.Millisecond)
		require.NoError(t, end(), "the twin that has passed its socket on ends on SIGTERM")
		answer, err := w.ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("r ", version), answer)
		end = next
	}
	stop()
	clients.Wait()
	require.NoError(t, end())
}

func TestTheHookWaitsUntilTheNewTwinServes(t *testing.T) {
	w := newTwins(t)
	first := w.start(1, 0)
	require.NoError(t, w.handover(1).awaitOwn(t.Context()))
	second := w.start(2, time.Hour)
	hook, cancel := context.WithTimeout(t.Context(), 3*askAgainAfter)
	defer cancel()
	require.ErrorIs(t, w.handover(2).awaitOwn(hook), context.DeadlineExceeded)
	answer, err := w.ask(http.DefaultClient)
	require.NoError(t, err)
	require.Equal(t, "r 1", answer)
	require.NoError(t, second())
	require.NoError(t, first())
}

func TestASuccessorThatFailsLeavesTheSocketWhereItWas(t *testing.T) {
	w := newTwins(t)
	end := w.start(1, 0)
	require.NoError(t, w.handover(1).awaitOwn(t.Context()))
	connection, err := w.handover(2).dial(t.Context())
	require.NoError(t, err)
	listener, err := takeOver(connection)
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.NoError(t, connection.Close(), "it never says that it serves")
	serving, err := w.handover(2).serving(t.Context())
	require.NoError(t, err)
	require.Equal(t, "1", serving)
	answer, err := w.ask(http.DefaultClient)
	require.NoError(t, err)
	require.Equal(t, "r 1", answer)
	require.NoError(t, end())
}

func TestATwinThatEndsReleasesItsAddress(t *testing.T) {
	w := newTwins(t)
	end := w.start(1, 0)
	require.NoError(t, w.handover(1).awaitOwn(t.Context()))
	require.NoError(t, end())
	end = w.start(2, 0)
	require.NoError(t, w.handover(2).awaitOwn(t.Context()))
	require.NoError(t, end())
}
