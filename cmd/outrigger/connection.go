package main

import (
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

// addConnection adds the flags of the temporal CLI, prefixed: --namespace is the system
// namespace here.
func addConnection(cmd *cobra.Command, f *temporal.Flags) {
	set := cmd.Flags()
	set.StringVar(&f.Address, "temporal-address", "", "`host:port` of the Temporal server (TEMPORAL_ADDRESS); it is waited for (default "+temporal.DefaultAddress+")")
	set.StringVar(&f.Namespace, "temporal-namespace", "", "Temporal `namespace` (TEMPORAL_NAMESPACE) (default "+temporal.DefaultNamespace+")")
	set.StringVar(&f.APIKey, "temporal-api-key", "", "API `key` (TEMPORAL_API_KEY); other users of the machine can see it: rather use --temporal-api-key-file")
	set.StringVar(&f.APIKeyFile, "temporal-api-key-file", "", "`file` with the API key, read at each call (TEMPORAL_API_KEY_FILE)")
	addBool(cmd, &f.TLS, "temporal-tls", "use TLS (TEMPORAL_TLS); an API key or another TLS option turns it on, too, and =false turns it off")
	set.StringVar(&f.CertPath, "temporal-tls-cert-path", "", "`file` with the client certificate, read at each handshake (TEMPORAL_TLS_CLIENT_CERT_PATH)")
	set.StringVar(&f.KeyPath, "temporal-tls-key-path", "", "`file` with the key of the client certificate (TEMPORAL_TLS_CLIENT_KEY_PATH)")
	set.StringVar(&f.CAPath, "temporal-tls-ca-path", "", "`file` with the CA of the server's certificate (TEMPORAL_TLS_SERVER_CA_CERT_PATH); empty: the system's")
	set.StringVar(&f.ServerName, "temporal-tls-server-name", "", "`name` in the server's certificate (TEMPORAL_TLS_SERVER_NAME); empty: the host of the address")
	addBool(cmd, &f.DisableHostVerification, "temporal-tls-disable-host-verification", "accept any certificate of the server (TEMPORAL_TLS_DISABLE_HOST_VERIFICATION)")
	set.StringArrayVar(&f.Headers, "temporal-grpc-meta", nil, "`KEY=VALUE`, a header of each call (TEMPORAL_GRPC_META_<KEY>); may be repeated")
	set.StringVar(&f.Profile, "temporal-profile", "", "`profile` of the configuration file (TEMPORAL_PROFILE) (default "+envconfig.DefaultConfigFileProfile+")")
	set.StringVar(&f.ConfigFile, "temporal-config-file", "", "`file` with profiles, as the temporal CLI's (TEMPORAL_CONFIG_FILE) (default temporalio/temporal.toml in the user's configuration)")
}

// addBool adds a flag that can also be absent.
func addBool(cmd *cobra.Command, into **bool, name, usage string) {
	cmd.Flags().BoolFunc(name, usage, func(text string) error {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("use true or false")
		}
		*into = &value
		return nil
	})
}

// addPayloadKeys adds the flags of those that write or read payloads.
func addPayloadKeys(cmd *cobra.Command, o *codec.Options) {
	set := cmd.Flags()
	set.StringVar(&o.KeyDir, "temporal-payload-key-dir", "", "`directory` of the keys that decrypt payloads, one file for each key id, read again when they change (TEMPORAL_PAYLOAD_KEY_DIR)")
	set.StringVar(&o.KeyID, "temporal-payload-key-id", "", "`id` of the key that encrypts payloads (TEMPORAL_PAYLOAD_KEY_ID); empty: they are not encrypted")
	set.StringVar(&o.KeyIDFile, "temporal-payload-key-id-file", "", "`file` with that id, read again when it changes, such as .current beside the keys (TEMPORAL_PAYLOAD_KEY_ID_FILE)")
}

// payloadCodec is nil without keys.
func payloadCodec(o codec.Options) (*codec.Codec, error) {
	return codec.Open(o.WithVariables(os.LookupEnv))
}

// roleConnection is how a role that writes and reads payloads connects to Temporal.
func roleConnection(f *temporal.Flags, keys codec.Options, role string) (temporal.Options, error) {
	options, err := connection(f, role)
	if err != nil {
		return options, err
	}
	options.Codec, err = payloadCodec(keys)
	return options, err
}

// connection is how a role, or a command, connects to Temporal.
func connection(f *temporal.Flags, role string) (temporal.Options, error) {
	options, err := f.Options(envconfig.EnvLookupOS)
	options.Identity = temporal.Identity(role, envconfig.EnvLookupOS)
	return options, err
}
