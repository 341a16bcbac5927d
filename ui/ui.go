package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	sdk "go.temporal.io/sdk/client"
	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// maxConnections limits the open connections.
	maxConnections = 64

	headerTimeout = 5 * time.Second
	// pageTimeout limits the reads of a page.
	pageTimeout  = 20 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = time.Minute
)

// Options are the options of the process.
type Options struct {
	kube.Options
	// Address has the form host:port. If the address is not a loopback address, each request needs a bearer
	// token, and the server needs a certificate.
	Address string
	// CertFile and KeyFile are read at each handshake. If CertFile and KeyFile are empty, the server does not
	// use TLS.
	CertFile, KeyFile string
	Temporal          temporal.Options
	// TemporalUI is the URL of the Temporal UI. If TemporalUI is empty, pages show the links that the
	// operator writes into status.
	TemporalUI string
	// Fleet is the connection to the Temporal of the fleet. Outside of fleets, Fleet is nil.
	Fleet *temporal.Options
}

// Run serves pages until the context ends.
func Run(ctx context.Context, o Options) error {
	open, err := o.loopback()
	if err != nil {
		return err
	}
	mgr, err := o.NewManager(func(options *manager.Options) {
		// The default transform would drop the managed fields, which contain the time of the last change of
		// status.
		options.Cache.ByObject[&v1alpha1.SidecarSet{}] = cache.ByObject{Transform: func(o any) (any, error) { return o, nil }}
	})
	if err != nil {
		return err
	}
	runs, err := temporal.NewLazyClient(o.Temporal, o.Logger)
	if err != nil {
		return err
	}
	defer runs.Close()
	s := &site{models: cli.NewModels(cli.Sources{
		Cached: mgr.GetClient(), Live: mgr.Direct, Temporal: runs, TemporalOptions: o.Temporal, TemporalUI: o.TemporalUI, SystemNamespace: o.SystemNamespace,
	}), clock: clock.RealClock{}, log: o.Logger}
	if o.Fleet != nil {
		fleet, err := temporal.NewLazyClient(*o.Fleet, o.Logger)
		if err != nil {
			return err
		}
		defer fleet.Close()
		s.fleet = &fleetReader{fleet, *o.Fleet}
	}
	guard := localOnly
	if !open {
		guard = (&access{mgr.Direct}).guard
	}
	listener, err := o.listen(ctx)
	if err != nil {
		return err
	}
	server := &manager.Server{Name: "ui", Listener: listener, Server: &http.Server{
		Handler: s.handler(guard), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}}
	if err := errors.Join(mgr.Add(server), mgr.AddChecks()); err != nil {
		return errors.Join(err, listener.Close())
	}
	o.Logger.Info("serving pages", "address", listener.Addr().String(), "tls", o.CertFile != "", "authentication", !open, "fleet", s.fleet != nil)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("serve pages: %w", err)
	}
	return nil
}

// loopback reports whether the address is a loopback address, so that only this host or this pod can connect.
// For another address without a certificate, loopback returns an error, because clients would send tokens in
// plain text.
func (o *Options) loopback() (bool, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return false, fmt.Errorf("--bind-address %q: use host:port: %w", o.Address, err)
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return false, errors.New("--tls-cert-file and --tls-private-key-file need each other")
	}
	ip := net.ParseIP(host)
	local := host == "localhost" || ip != nil && ip.IsLoopback()
	if !local && o.CertFile == "" {
		return false, fmt.Errorf("--bind-address %s: clients would send their bearer tokens in plain text: set --tls-cert-file and --tls-private-key-file", o.Address)
	}
	return local, nil
}

func (o *Options) listen(ctx context.Context) (net.Listener, error) {
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", o.CertFile, o.KeyFile, err)
		}
		return &pair, nil
	}
	if o.CertFile != "" {
		if _, err := certificate(nil); err != nil {
			return nil, err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for requests to pages: %w", err)
	}
	listener = netutil.LimitListener(listener, maxConnections)
	if o.CertFile != "" {
		listener = tls.NewListener(listener, &tls.Config{GetCertificate: certificate, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	return listener, nil
}

// fleetReader reads the rollouts of a fleet.
type fleetReader struct {
	sdk.Client
	options temporal.Options
}
