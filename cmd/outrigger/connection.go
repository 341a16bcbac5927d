package main

import (
	"os"

	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

// payloadCodec returns nil without keys.
func payloadCodec(o codec.Options) (*codec.Codec, error) {
	return codec.Open(o.WithVariables(os.LookupEnv))
}

// roleConnection returns the connection of a role that writes and reads payloads.
func roleConnection(f *temporal.Flags, keys codec.Options, role string) (temporal.Options, error) {
	options, err := connection(f, role)
	if err != nil {
		return options, err
	}
	options.Codec, err = payloadCodec(keys)
	return options, err
}

// connection returns the connection of a role or a command to Temporal.
func connection(f *temporal.Flags, role string) (temporal.Options, error) {
	options, err := f.Options(envconfig.EnvLookupOS)
	options.Identity = temporal.Identity(role, envconfig.EnvLookupOS)
	return options, err
}
