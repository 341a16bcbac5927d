package temporal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// variables is an environment that contains only these variables.
type variables map[string]string

func (v variables) LookupEnv(key string) (string, bool) {
	value, ok := v[key]
	return value, ok
}

func (v variables) Environ() (all []string) {
	for key, value := range v {
		all = append(all, key+"="+value)
	}
	return all
}

const profiles = `
[profile.default]
address = "profile:7233"
namespace = "of-profile"
api_key = "profile-key"
grpc_meta = { team = "profile", Cost_Center = "7" }
[profile.default.tls]
server_name = "profile.example"
client_cert_path = "profile.crt"
client_key_path = "profile.key"
server_ca_cert_path = "profile.ca"
[profile.other]
address = "other:7233"
[profile.plain]
api_key = "plain-key"
tls = { disabled = true }
`

func writeFile(t *testing.T, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// described contains the values of Options in a comparable form.
type described struct {
	address, namespace, key string
	headers                 map[string]string
	tls                     bool
	serverName, cert, ca    string
	skip                    bool
}

func describe(t *testing.T, o Options) described {
	d := described{address: o.Address, namespace: o.Namespace, headers: o.Headers, tls: o.TLS != nil}
	if o.APIKey != nil {
		var err error
		d.key, err = o.APIKey()
		require.NoError(t, err)
	}
	if o.TLS != nil {
		d.serverName, d.skip = o.TLS.ServerName, o.TLS.DisableHostVerification
		d.cert, d.ca = o.TLS.certificate.path+string(o.TLS.certificate.data), o.TLS.ca.path
	}
	return d
}

func TestFlagsWinOverVariablesOverProfileOverDefaults(t *testing.T) {
	file := writeFile(t, "temporal.toml", profiles)
	home := func(more variables) variables {
		all := variables{"TEMPORAL_CONFIG_FILE": file}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	ofProfile := described{
		address: "profile:7233", namespace: "of-profile", key: "profile-key", headers: map[string]string{"team": "profile", "cost-center": "7"},
		tls: true, serverName: "profile.example", cert: "profile.crt", ca: "profile.ca",
	}
	with := func(change func(*described)) described {
		changed := ofProfile
		change(&changed)
		return changed
	}
	keyFile := writeFile(t, "key", " file-key\n")
	for _, test := range []struct {
		name  string
		flags Flags
		env   variables
		want  described
	}{
		{name: "nothing", want: described{address: "127.0.0.1:7233", namespace: "default"}},
		{name: "empty variables", env: variables{"TEMPORAL_ADDRESS": "", "TEMPORAL_NAMESPACE": "", "TEMPORAL_API_KEY": "", "TEMPORAL_CONFIG_FILE": "", "TEMPORAL_PROFILE": ""},
			want: described{address: "127.0.0.1:7233", namespace: "default"}},
		{name: "the default profile", env: home(nil), want: ofProfile},
		{name: "a file by flag", flags: Flags{ConfigFile: file}, env: variables{"TEMPORAL_CONFIG_FILE": "absent"}, want: ofProfile},
		{name: "a profile by variable", env: home(variables{"TEMPORAL_PROFILE": "other"}), want: described{address: "other:7233", namespace: "default"}},
		{name: "a profile by flag", flags: Flags{Profile: "other"}, env: home(variables{"TEMPORAL_PROFILE": "default"}), want: described{address: "other:7233", namespace: "default"}},
		{name: "variables", env: home(variables{
			"TEMPORAL_ADDRESS": "env:7233", "TEMPORAL_NAMESPACE": "of-env", "TEMPORAL_API_KEY": "env-key",
			"TEMPORAL_TLS_SERVER_NAME": "env.example", "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "true", "TEMPORAL_GRPC_META_TEAM": "env", "TEMPORAL_GRPC_META_COST_CENTER": "",
		}), want: described{
			address: "env:7233", namespace: "of-env", key: "env-key", headers: map[string]string{"team": "env"},
			tls: true, serverName: "env.example", cert: "profile.crt", ca: "profile.ca", skip: true,
		}},
		{name: "flags", flags: Flags{
			Address: "flag:7233", Namespace: "of-flag", APIKey: "flag-key", Headers: []string{"Team=a=b", "x_y=z"},
			ServerName: "flag.example", CertPath: "flag.crt", KeyPath: "flag.key", CAPath: "flag.ca", DisableHostVerification: new(false),
		}, env: home(variables{
			"TEMPORAL_ADDRESS": "env:7233", "TEMPORAL_NAMESPACE": "of-env", "TEMPORAL_API_KEY": "env-key", "TEMPORAL_GRPC_META_TEAM": "env",
			"TEMPORAL_TLS_SERVER_NAME": "env.example", "TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "true", "TEMPORAL_TLS": "false",
		}), want: described{
			address: "flag:7233", namespace: "of-flag", key: "flag-key", headers: map[string]string{"team": "a=b", "x-y": "z", "cost-center": "7"},
			tls: true, serverName: "flag.example", cert: "flag.crt", ca: "flag.ca",
		}},
		{name: "a key file by flag over a key by variable", flags: Flags{APIKeyFile: keyFile}, env: home(variables{"TEMPORAL_API_KEY": "env-key"}),
			want: with(func(d *described) { d.key = "file-key" })},
		{name: "a key by flag over a key file by variable", flags: Flags{APIKey: "flag-key"}, env: home(variables{"TEMPORAL_API_KEY_FILE": "absent"}),
			want: with(func(d *described) { d.key = "flag-key" })},
		{name: "a key file by variable over the profile", env: home(variables{"TEMPORAL_API_KEY_FILE": keyFile}),
			want: with(func(d *described) { d.key = "file-key" })},
		{name: "an empty variable removes the profile's key", env: home(variables{"TEMPORAL_API_KEY": ""}),
			want: with(func(d *described) { d.key = "" })},
		{name: "a path by flag over data by variable", flags: Flags{CertPath: "flag.crt", KeyPath: "flag.key"},
			env:  variables{"TEMPORAL_TLS_CLIENT_CERT_DATA": "cert", "TEMPORAL_TLS_CLIENT_KEY_DATA": "key"},
			want: described{address: "127.0.0.1:7233", namespace: "default", tls: true, cert: "flag.crt"}},
		{name: "data by variable", env: variables{"TEMPORAL_TLS_CLIENT_CERT_DATA": "cert", "TEMPORAL_TLS_CLIENT_KEY_DATA": "key"},
			want: described{address: "127.0.0.1:7233", namespace: "default", tls: true, cert: "cert"}},
		{name: "a key turns TLS on", flags: Flags{APIKey: "flag-key"}, want: described{address: "127.0.0.1:7233", namespace: "default", key: "flag-key", tls: true}},
		{name: "unless it is turned off", flags: Flags{APIKey: "flag-key", TLS: new(false), ServerName: "x"}, want: described{address: "127.0.0.1:7233", namespace: "default", key: "flag-key"}},
		{name: "TLS is off in the profile", flags: Flags{Profile: "plain"}, env: home(nil), want: described{address: "127.0.0.1:7233", namespace: "default", key: "plain-key"}},
		{name: "and on by flag", flags: Flags{Profile: "plain", TLS: new(true)}, env: home(nil), want: described{address: "127.0.0.1:7233", namespace: "default", key: "plain-key", tls: true}},
		{name: "and on by variable", flags: Flags{Profile: "plain"}, env: home(variables{"TEMPORAL_TLS": "true"}), want: described{address: "127.0.0.1:7233", namespace: "default", key: "plain-key", tls: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			options, err := test.flags.Options(test.env)
			require.NoError(t, err)
			assert.Equal(t, test.want, describe(t, options))
		})
	}
}

func TestTheProfileOfTheUsersConfigurationIsRead(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	require.NoError(t, os.Mkdir(filepath.Join(home, "temporalio"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "temporalio", "temporal.toml"), []byte(profiles), 0o600))
	options, err := new(Flags).Options(variables{})
	require.NoError(t, err)
	assert.Equal(t, "profile:7233", options.Address)
}

func TestWithoutAHomeThereIsNoProfile(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	options, err := new(Flags).Options(variables{})
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:7233", options.Address)
}

func TestContradictionsAreRejected(t *testing.T) {
	const secret = "s3cr3t"
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	file := writeFile(t, "temporal.toml", profiles)
	for _, test := range []struct {
		name  string
		flags Flags
		env   variables
		want  string
	}{
		{"two keys", Flags{APIKey: secret, APIKeyFile: "key"}, nil, "use one of --temporal-api-key and --temporal-api-key-file"},
		{"two keys by variable", Flags{}, variables{"TEMPORAL_API_KEY": secret, "TEMPORAL_API_KEY_FILE": "key"}, "use one of --temporal-api-key and --temporal-api-key-file"},
		{"a certificate without key", Flags{CertPath: "tls.crt"}, nil, "--temporal-tls-cert-path and --temporal-tls-key-path"},
		{"path and data", Flags{}, variables{"TEMPORAL_TLS_CLIENT_CERT_PATH": "x", "TEMPORAL_TLS_CLIENT_CERT_DATA": secret, "TEMPORAL_TLS_CLIENT_KEY_PATH": "x"}, "the client certificate is given as a path and as data"},
		{"no header", Flags{Headers: []string{secret}}, nil, "--temporal-grpc-meta: use KEY=VALUE"},
		{"no file", Flags{ConfigFile: "absent.toml"}, nil, "read the configuration of Temporal: stat absent.toml: no such file or directory"},
		{"no profile", Flags{ConfigFile: file, Profile: "absent"}, nil, "unable to find profile absent in config data (correct --temporal-profile or TEMPORAL_PROFILE, or name another file with --temporal-config-file"},
		{"no switch", Flags{}, variables{"TEMPORAL_TLS": "maybe"}, `TEMPORAL_TLS is "maybe": use true or false`},
		{"no other switch", Flags{}, variables{"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION": "yes"}, `TEMPORAL_TLS_DISABLE_HOST_VERIFICATION is "yes": use true or false`},
		{"no TOML", Flags{ConfigFile: writeFile(t, "x.toml", "[profile.default]\napi_key = "+secret)}, nil, "not a TOML file of profiles (toml: line 2)"},
		{"no string", Flags{ConfigFile: writeFile(t, "y.toml", "[profile.default]\napi_key = [\""+secret+"\"]")}, nil, "not a TOML file of profiles"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.flags.Options(test.env)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), secret)
		})
	}
}

func TestIdentityNamesRoleAndPod(t *testing.T) {
	assert.Equal(t, "outrigger-worker@worker-7d4f", Identity("worker", variables{"POD_NAME": "worker-7d4f"}))
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, "outrigger-operator@"+host, Identity("operator", variables{}))
}
