package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/temporal/codec"
)

func newCodecServer(shared *flags) *cobra.Command {
	var s codec.Server
	var keys codec.Options
	cmd := &cobra.Command{
		Use:   "codec-server",
		Short: "Decrypt payloads for the Temporal UI and CLI",
		Long: "Serves POST /decode, and POST /encode if a key for encryption is set, for the Temporal UI and the temporal CLI (--codec-endpoint). " +
			"Each client of the server can read all histories. Without a token it listens on the loopback address only.",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			if s.Codec, err = codec.Open(keys.WithVariables(os.LookupEnv)); err != nil {
				return err
			}
			if s.Codec != nil {
				s.Codec.Log = options.Logger
			}
			options.Logger.Info("serving the codec", "address", s.Address, "tls", s.CertFile != "", "token", s.TokenFile != "", "origins", s.Origins)
			return s.Run(cmd.Context())
		},
	}
	keys.AddTo(cmd.Flags())
	set := cmd.Flags()
	set.StringVar(&s.Address, "bind-address", "127.0.0.1:8088", "`host:port` to listen on")
	set.StringVar(&s.TokenFile, "token-file", "", "`file` with the bearer token of requests, read at each request; required unless the address is 127.0.0.1")
	set.BoolVar(&s.AllowUnauthenticated, "allow-unauthenticated", false, "answer all clients, for example behind a proxy that authenticates")
	set.StringArrayVar(&s.Origins, "cors-origin", nil, "allowed `origin` of a Temporal UI, such as https://temporal.example.com; may be repeated")
	set.StringVar(&s.CertFile, "tls-cert-file", "", "`file` with the server's certificate, read at each handshake; empty: no TLS")
	set.StringVar(&s.KeyFile, "tls-private-key-file", "", "`file` with the key of the certificate")
	return cmd
}
