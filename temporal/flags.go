package temporal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/temporal/codec"
)

// These defaults apply if the flag, the variable and the profile are empty.
const (
	DefaultAddress   = "127.0.0.1:7233"
	DefaultNamespace = "default"
)

// apiKeyFileVariable exists only in Outrigger, because the temporal CLI does not read API keys
// from files.
const apiKeyFileVariable = "TEMPORAL_API_KEY_FILE"

// Flags are the connection flags of the temporal CLI. The TEMPORAL_* variables replace empty flags. The
// profile applies if the flag and the variable are empty, and the defaults apply if the profile is also
// empty.
type Flags struct {
	Address, Namespace string
	// APIKey and APIKeyFile exclude each other. APIKeyFile is read at each call.
	APIKey, APIKeyFile string
	// TLS turns TLS on or off. If TLS is nil, an API key or another TLS option turns TLS on.
	TLS                                   *bool
	CertPath, KeyPath, CAPath, ServerName string
	DisableHostVerification               *bool
	// Headers have the form KEY=VALUE.
	Headers []string
	// Profile and ConfigFile must exist if they are set.
	Profile, ConfigFile string
}

// Identity returns outrigger-<role>@<pod>. <pod> is the value of the variable POD_NAME, or otherwise the host
// name.
func Identity(role string, env envconfig.EnvLookup) string {
	pod, _ := env.LookupEnv("POD_NAME")
	if pod == "" {
		pod, _ = os.Hostname()
	}
	return "outrigger-" + role + "@" + cmp.Or(pod, "unknown")
}

// Options merges flags, variables and profile. Options returns an error for invalid or contradictory values.
// Errors contain no secrets. Files with certificates and keys are read at each handshake.
func (f *Flags) Options(env envconfig.EnvLookup) (Options, error) {
	if err := checkSwitches(env); err != nil {
		return Options{}, err
	}
	profile, err := f.profile(env)
	if err != nil {
		return Options{}, err
	}
	apiKey, err := f.apiKey(profile, env)
	if err != nil {
		return Options{}, err
	}
	headers, err := f.headers(profile.GRPCMeta)
	if err != nil {
		return Options{}, err
	}
	security := f.tls(profile.TLS)
	if security == nil && apiKey != nil {
		security = &envconfig.ClientConfigTLS{}
	}
	transport, err := newTLS(security)
	if err != nil {
		return Options{}, err
	}
	address := cmp.Or(f.Address, profile.Address, DefaultAddress)
	if err := checkAddress(address, transport != nil); err != nil {
		return Options{}, err
	}
	return Options{
		Address:   address,
		Namespace: cmp.Or(f.Namespace, profile.Namespace, DefaultNamespace),
		TLS:       transport,
		APIKey:    apiKey,
		Headers:   headers,
		Authority: profile.Authority,
	}, nil
}

// ProcessOptions returns the options of a process, with the identity of the process and the codec of
// payloads.
func (f *Flags) ProcessOptions(process string, keys codec.Options) (Options, error) {
	options, err := f.Options(envconfig.EnvLookupOS)
	if err != nil {
		return options, err
	}
	options.Identity = Identity(process, envconfig.EnvLookupOS)
	options.Codec, err = codec.Open(keys.WithVariables(os.LookupEnv))
	return options, err
}

// checkSwitches returns an error for a boolean variable with an invalid value, because envconfig would ignore
// the value.
func checkSwitches(env envconfig.EnvLookup) error {
	for _, name := range []string{"TEMPORAL_TLS", "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION"} {
		value, _ := env.LookupEnv(name)
		if !slices.Contains([]string{"", "1", "0", "true", "false"}, strings.ToLower(value)) {
			return fmt.Errorf("%s is %q: use true or false", name, value)
		}
	}
	return nil
}

// profile returns the profile of the configuration file, overridden by the variables.
func (f *Flags) profile(env envconfig.EnvLookup) (envconfig.ClientConfigProfile, error) {
	file, _ := env.LookupEnv("TEMPORAL_CONFIG_FILE")
	file = cmp.Or(f.ConfigFile, file)
	if file != "" {
		// envconfig ignores a missing file.
		if _, err := os.Stat(file); err != nil {
			return envconfig.ClientConfigProfile{}, fmt.Errorf("read the configuration of Temporal: %w (see --temporal-config-file and TEMPORAL_CONFIG_FILE)", err)
		}
	}
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{
		ConfigFilePath: f.ConfigFile, ConfigFileProfile: f.Profile, EnvLookup: env,
	})
	if err == nil {
		return profile, nil
	}
	file = cmp.Or(file, envconfig.DefaultConfigFilePath())
	if strings.Contains(err.Error(), "unable to find profile") {
		return envconfig.ClientConfigProfile{}, fmt.Errorf("read the configuration of Temporal, %s: %w (correct --temporal-profile or TEMPORAL_PROFILE, or name another file with --temporal-config-file or TEMPORAL_CONFIG_FILE)", file, err)
	}
	if syntax := regexp.MustCompile(`toml: line \d+`).FindString(err.Error()); strings.Contains(err.Error(), "parsing") {
		// The parser quotes the invalid text, which may be a key.
		err = fmt.Errorf("not a TOML file of profiles (%s)", cmp.Or(syntax, "a value has another type"))
	}
	return envconfig.ClientConfigProfile{}, fmt.Errorf("read the configuration of Temporal, %s: %w", file, err)
}

func (f *Flags) apiKey(profile envconfig.ClientConfigProfile, env envconfig.EnvLookup) (func() (string, error), error) {
	file, key := f.APIKeyFile, f.APIKey
	if file == "" && key == "" {
		file, _ = env.LookupEnv(apiKeyFileVariable)
		key, _ = env.LookupEnv("TEMPORAL_API_KEY")
	}
	switch {
	case file != "" && key != "":
		return nil, errors.New("an API key and an API key file are given: use one of --temporal-api-key and --temporal-api-key-file (TEMPORAL_API_KEY, " + apiKeyFileVariable + ")")
	case file != "":
		return func() (string, error) { return readAPIKey(file) }, nil
	}
	if key = strings.TrimSpace(cmp.Or(key, profile.APIKey)); key == "" {
		return nil, nil
	}
	return func() (string, error) { return key, nil }, nil
}

func readAPIKey(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf(unusable+"%w", err)
	}
	if data = bytes.TrimSpace(data); len(data) == 0 {
		return "", fmt.Errorf(unusable+"%s contains no API key", file)
	}
	return string(data), nil
}

func (f *Flags) headers(inherited map[string]string) (map[string]string, error) {
	headers := maps.Clone(inherited)
	for _, header := range f.Headers {
		key, value, ok := strings.Cut(header, "=")
		if !ok || key == "" {
			return nil, errors.New("--temporal-grpc-meta: use KEY=VALUE")
		}
		if headers == nil {
			headers = map[string]string{}
		}
		headers[envconfig.NormalizeGRPCMetaKey(key)] = value
	}
	return headers, nil
}

// tls returns the inherited configuration, overridden by the flags. If no TLS flag is set, tls returns the
// inherited configuration, which may be nil.
func (f *Flags) tls(inherited *envconfig.ClientConfigTLS) *envconfig.ClientConfigTLS {
	named := f.CertPath != "" || f.KeyPath != "" || f.CAPath != "" || f.ServerName != "" || f.DisableHostVerification != nil
	if !named && f.TLS == nil {
		return inherited
	}
	var result envconfig.ClientConfigTLS
	if inherited != nil {
		result = *inherited
	}
	override := func(path *string, data *[]byte, flag string) {
		if flag != "" {
			*path, *data = flag, nil
		}
	}
	override(&result.ClientCertPath, &result.ClientCertData, f.CertPath)
	override(&result.ClientKeyPath, &result.ClientKeyData, f.KeyPath)
	override(&result.ServerCACertPath, &result.ServerCACertData, f.CAPath)
	result.ServerName = cmp.Or(f.ServerName, result.ServerName)
	if f.DisableHostVerification != nil {
		result.DisableHostVerification = *f.DisableHostVerification
	}
	result.Disabled = f.TLS != nil && !*f.TLS
	return &result
}

func newTLS(security *envconfig.ClientConfigTLS) (*TLS, error) {
	if security == nil || security.Disabled {
		return nil, nil
	}
	t := &TLS{
		ServerName:              security.ServerName,
		DisableHostVerification: security.DisableHostVerification,
		certificate:             pemSource{security.ClientCertPath, security.ClientCertData},
		key:                     pemSource{security.ClientKeyPath, security.ClientKeyData},
		ca:                      pemSource{security.ServerCACertPath, security.ServerCACertData},
	}
	for _, pem := range []struct {
		name string
		pemSource
	}{{"client certificate", t.certificate}, {"client key", t.key}, {"CA", t.ca}} {
		if pem.path != "" && len(pem.data) > 0 {
			return nil, fmt.Errorf("TLS to Temporal: the %s is given as a path and as data: use one of them", pem.name)
		}
	}
	if t.certificate.given() != t.key.given() {
		return nil, errors.New("TLS to Temporal: a client certificate needs a key, and a key needs a certificate (--temporal-tls-cert-path and --temporal-tls-key-path)")
	}
	return t, nil
}
