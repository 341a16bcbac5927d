package temporal

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/temporal/codec"
)

// FleetFlags are the flags of the connection to the Temporal of a fleet.
type FleetFlags struct {
	connection Flags
	keys       codec.Options
}

// AddTo adds the flags with the prefix fleet-temporal-.
func (f *FleetFlags) AddTo(set *pflag.FlagSet) {
	c := &f.connection
	set.StringVar(&c.Address, "fleet-temporal-address", "", "`address` of the Temporal of the fleet; empty: the address of the cluster's Temporal")
	set.StringVar(&c.Namespace, "fleet-temporal-namespace", "", "Temporal `namespace` of the fleet; empty: the Temporal namespace of the cluster")
	set.StringVar(&c.APIKeyFile, "fleet-temporal-api-key-file", "", "`file` with the API key for the fleet, read at each call; with this or a TLS option of the fleet, TLS, API key and headers of the cluster do not apply to the fleet")
	addBool(set, &c.TLS, "fleet-temporal-tls", "use TLS to the fleet; =false turns it off")
	set.StringVar(&c.CertPath, "fleet-temporal-tls-cert-path", "", "`file` with the client certificate for the fleet, read at each handshake")
	set.StringVar(&c.KeyPath, "fleet-temporal-tls-key-path", "", "`file` with the key of the client certificate for the fleet")
	set.StringVar(&c.CAPath, "fleet-temporal-tls-ca-path", "", "`file` with the CA of the certificate of the fleet's server; empty: the CAs of the system")
	set.StringVar(&c.ServerName, "fleet-temporal-tls-server-name", "", "`name` in the certificate of the fleet's server; empty: the host of the address")
	set.StringVar(&f.keys.KeyDir, "fleet-temporal-payload-key-dir", "", "`directory` of the keys of the fleet's payloads; empty: the keys of the cluster")
	set.StringVar(&f.keys.KeyID, "fleet-temporal-payload-key-id", "", "`id` of the key that encrypts the fleet's payloads")
	set.StringVar(&f.keys.KeyIDFile, "fleet-temporal-payload-key-id-file", "", "`file` with the id of the key that encrypts the fleet's payloads")
}

// Given reports whether at least one flag is set.
func (f *FleetFlags) Given() bool {
	return f.connection.Address+f.connection.Namespace != "" || f.secured() || f.keys != codec.Options{}
}

// secured reports whether the flags set an API key or a TLS option.
func (f *FleetFlags) secured() bool {
	return f.connection.APIKeyFile != "" || f.connection.tls(nil) != nil
}

// Options returns the options of the connection to the fleet. The options of the cluster replace empty flags.
// If the flags set an API key or a TLS option, the TLS, API key, headers and authority of the cluster do not
// apply. Therefore, the fleet does not receive credentials of the cluster.
func (f *FleetFlags) Options(cluster Options) (Options, error) {
	options, c := cluster, &f.connection
	options.Address, options.Namespace = cmp.Or(c.Address, cluster.Address), cmp.Or(c.Namespace, cluster.Namespace)
	if f.secured() {
		options.TLS, options.APIKey, options.Headers, options.Authority = nil, nil, nil, ""
		if file := c.APIKeyFile; file != "" {
			options.APIKey = func() (string, error) { return readAPIKey(file) }
		}
		security := c.tls(nil)
		if security == nil {
			security = c.tls(&envconfig.ClientConfigTLS{})
		}
		var err error
		if options.TLS, err = newTLS(security); err != nil {
			return options, fmt.Errorf("the connection to the fleet, with flags --fleet-temporal-…: %w", err)
		}
	}
	if err := checkAddress(options.Address, options.TLS != nil); err != nil {
		return options, fmt.Errorf("the connection to the fleet, with flags --fleet-temporal-…: %w", err)
	}
	if f.keys == (codec.Options{}) {
		return options, nil
	}
	var err error
	if options.Codec, err = codec.Open(f.keys); err != nil {
		return options, fmt.Errorf("the payload keys of the fleet, with flags --fleet-temporal-…: %w", err)
	}
	return options, nil
}
