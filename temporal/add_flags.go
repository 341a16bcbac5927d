package temporal

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/contrib/envconfig"
)

// AddTo adds the flags of the temporal CLI with the prefix temporal-, because --namespace is the Kubernetes
// namespace in the commands of Outrigger.
func (f *Flags) AddTo(set *pflag.FlagSet) {
	set.StringVar(&f.Address, "temporal-address", "", "`host:port` of the Temporal server (TEMPORAL_ADDRESS) (default "+DefaultAddress+")")
	set.StringVar(&f.Namespace, "temporal-namespace", "", "Temporal `namespace` (TEMPORAL_NAMESPACE) (default "+DefaultNamespace+")")
	set.StringVar(&f.APIKey, "temporal-api-key", "", "API `key` (TEMPORAL_API_KEY); prefer --temporal-api-key-file, because other users of the machine can see the flags of a process")
	set.StringVar(&f.APIKeyFile, "temporal-api-key-file", "", "`file` with the API key, read at each call (TEMPORAL_API_KEY_FILE)")
	addBool(set, &f.TLS, "temporal-tls", "use TLS (TEMPORAL_TLS); an API key or another TLS option turns TLS on as well; =false turns it off")
	set.StringVar(&f.CertPath, "temporal-tls-cert-path", "", "`file` with the client certificate, read at each handshake (TEMPORAL_TLS_CLIENT_CERT_PATH)")
	set.StringVar(&f.KeyPath, "temporal-tls-key-path", "", "`file` with the key of the client certificate (TEMPORAL_TLS_CLIENT_KEY_PATH)")
	set.StringVar(&f.CAPath, "temporal-tls-ca-path", "", "`file` with the CA of the server's certificate (TEMPORAL_TLS_SERVER_CA_CERT_PATH); empty: the CAs of the system")
	set.StringVar(&f.ServerName, "temporal-tls-server-name", "", "`name` in the server's certificate (TEMPORAL_TLS_SERVER_NAME); empty: the host of the address")
	addBool(set, &f.DisableHostVerification, "temporal-tls-disable-host-verification", "accept any certificate of the server (TEMPORAL_TLS_DISABLE_HOST_VERIFICATION)")
	set.StringArrayVar(&f.Headers, "temporal-grpc-meta", nil, "`KEY=VALUE` header of each call (TEMPORAL_GRPC_META_<KEY>); may be repeated")
	set.StringVar(&f.Profile, "temporal-profile", "", "`profile` of the configuration file (TEMPORAL_PROFILE) (default "+envconfig.DefaultConfigFileProfile+")")
	set.StringVar(&f.ConfigFile, "temporal-config-file", "", "`file` with profiles, in the format of the temporal CLI (TEMPORAL_CONFIG_FILE) (default temporalio/temporal.toml in the user's configuration directory)")
}

// addBool adds a flag whose variable stays nil if the flag is absent.
func addBool(set *pflag.FlagSet, into **bool, name, usage string) {
	set.BoolFunc(name, usage, func(text string) error {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("use true or false")
		}
		*into = &value
		return nil
	})
}
