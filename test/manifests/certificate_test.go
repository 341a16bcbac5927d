package manifests

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/dev/cluster"
)

func TestTheChartRequestsACertificateOfTheWebhook(t *testing.T) {
	const name = " kruise-system/outrigger-webhook"
	all := rendered(t, "--set=webhook.certManager.enabled=true,webhook.args={--log-level=debug}")
	spec := all["Certificate"+name]["spec"].(object)
	assert.Equal(t, "outrigger-webhook-cert", spec["secretName"])
	assert.Equal(t, []any{"outrigger-webhook.kruise-system.svc"}, spec["dnsNames"])
	assert.Equal(t, object{"name": "outrigger-webhook", "kind": "Issuer", "group": "cert-manager.io"}, spec["issuerRef"])
	assert.Contains(t, all, "Issuer"+name)
	_, _, container := deployed(t, all, "webhook")
	assert.Subset(t, container["args"], []any{"--external-certificate", "--log-level=debug"})
	_, _, container = deployed(t, all, "worker")
	assert.NotContains(t, container["args"], "--external-certificate")

	all = rendered(t, "--set=webhook.certManager.enabled=true,webhook.certManager.issuerRef.name=corporate,webhook.certManager.issuerRef.kind=ClusterIssuer")
	spec = all["Certificate"+name]["spec"].(object)
	assert.Equal(t, object{"name": "corporate", "kind": "ClusterIssuer", "group": "cert-manager.io"}, spec["issuerRef"])
	assert.NotContains(t, all, "Issuer"+name)
}

// definitions returns definitions of the resources of cert-manager that accept any fields.
func definitions() string {
	var all strings.Builder
	for plural, kind := range map[string]string{"certificates": "Certificate", "issuers": "Issuer"} {
		fmt.Fprintf(&all, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.cert-manager.io}
spec:
  group: cert-manager.io
  names: {plural: %[1]s, kind: %[2]s}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---`, plural, kind)
	}
	return all.String()
}

// issue writes a Secret with a certificate of a new CA like cert-manager, and returns the certificate.
func (b *bare) issue() []byte {
	b.t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("outrigger-webhook.kruise-system.svc", nil, nil)
	require.NoError(b.t, err)
	leaf, ca := pem.Decode(chain)
	secret := corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": pem.EncodeToMemory(leaf), "tls.key": key, "ca.crt": ca}}
	secret.APIVersion, secret.Kind, secret.Name = "v1", "Secret", "outrigger-webhook-cert"
	text, err := yaml.Marshal(secret)
	require.NoError(b.t, err)
	kubectl(b.t, b.cluster, string(text), "apply", "--namespace=kruise-system", "--server-side", "--field-manager=cert-manager-certificates-issuing", "--force-conflicts", "-f", "-")
	return leaf.Bytes
}

// serves reports whether the Service presents the certificate der to a new client.
func (b *bare) serves(der []byte) bool {
	connection, err := tls.Dial("tcp", fmt.Sprintf("localhost:%d", b.service.port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return false
	}
	defer connection.Close()
	return string(connection.ConnectionState().PeerCertificates[0].Raw) == string(der)
}

// removeEarlierCAs runs the commands in docs/admission.md.
func (b *bare) removeEarlierCAs() {
	b.t.Helper()
	guide, err := os.ReadFile("../../docs/admission.md")
	require.NoError(b.t, err)
	const first = "kubectl -n kruise-system patch secret"
	_, commands, found := strings.Cut(string(guide), "```\n"+first)
	require.True(b.t, found)
	commands, _, found = strings.Cut(first+commands, "\n```")
	require.True(b.t, found)
	bin, err := filepath.Abs("../../bin")
	require.NoError(b.t, err)
	command := exec.CommandContext(b.t.Context(), "bash", "-ec", commands)
	command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+b.cluster.Kubeconfig)
	out, err := command.CombinedOutput()
	require.NoError(b.t, err, string(out))
}

// bundles returns the distinct CA bundles of all webhooks, and the number of certificates in each bundle.
func (b *bare) bundles() map[string]int {
	b.t.Helper()
	text := kubectl(b.t, b.cluster, "", "get", "mutatingwebhookconfigurations/outrigger", "validatingwebhookconfigurations/outrigger", "crd/sidecarsets.apps.kruise.io",
		"-o=jsonpath={.items[*].webhooks[*].clientConfig.caBundle} {.items[*].spec.conversion.webhook.clientConfig.caBundle}")
	all := map[string]int{}
	for _, bundle := range strings.Fields(text) {
		decoded, err := base64.StdEncoding.DecodeString(bundle)
		require.NoError(b.t, err)
		all[bundle] = strings.Count(string(decoded), "BEGIN CERTIFICATE")
	}
	return all
}

// The test creates pods during four changes: a certificate of cert-manager replaces the certificate that the
// webhook issued, replicas with --external-certificate replace the earlier replicas, cert-manager issues a
// certificate of another CA, and the earlier CAs are removed.
func TestSpec4_14_NoPodIsRejectedWhileCertManagerReplacesCertificates(t *testing.T) {
	t.Parallel()
	b := newBare(t, cluster.Options{WithoutTemporal: true})
	kubectl(t, b.cluster, definitions(), "apply", "-f", "-")
	kubectl(t, b.cluster, "", "wait", "--for=condition=Established", "crd/certificates.cert-manager.io", "crd/issuers.cert-manager.io")
	b.helm("install", "outrigger", packaged(t), "--create-namespace", "--wait", "--set=webhook.certManager.enabled=true")
	kubectl(t, b.cluster, "", "get", "certificates.cert-manager.io/outrigger-webhook", "issuers.cert-manager.io/outrigger-webhook", "--namespace=kruise-system")
	b.serve()

	first := b.issue()
	for i := range 2 {
		b.service.start(b.cluster, fmt.Sprintf("webhook-external-%d", i), "--external-certificate")
	}
	b.await("the first certificate of cert-manager", func() bool { return b.serves(first) })
	require.NoError(t, b.cluster.Stop(fmt.Sprintf("webhook-%d", b.roles)))
	second := b.issue()
	b.await("the second certificate of cert-manager", func() bool { return b.serves(second) })
	before, inARow := b.pods.injected.Load(), 0
	b.await("both replicas to serve it", func() bool {
		if inARow++; !b.serves(second) {
			inARow = 0
		}
		return b.pods.injected.Load() > before+2000 && inARow >= 30 // Each connection is routed to one of the two replicas.
	})

	require.Equal(t, []int{3}, slices.Collect(maps.Values(b.bundles())), "the CA of the webhook, and two CAs of cert-manager")
	b.removeEarlierCAs()
	b.await("one CA in all webhooks", func() bool { return slices.Equal([]int{1}, slices.Collect(maps.Values(b.bundles()))) })
	before = b.pods.injected.Load()
	b.await("pods with one CA", func() bool { return b.pods.injected.Load() > before+500 })
	require.NoError(t, b.pods.end())
	assert.Zero(t, b.pods.late.Load())
	t.Logf("%d pods were created, 0 rejected; %d got their sidecar", b.pods.created.Load(), b.pods.injected.Load())
}
