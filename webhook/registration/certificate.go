package registration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secret beside the standard ones of TLS Secrets.
const (
	caKey         = "ca.crt"
	previousCAKey = "ca-previous.crt"
)

const (
	certificateLifetime = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced. The
	// one before stays trusted until then.
	renewBefore = 90 * 24 * time.Hour
	// clockSkew makes new certificates valid on machines that lag behind.
	clockSkew = time.Hour
)

// authority makes the serving certificate. Each comes with a CA of its own,
// whose key is thrown away at once: nothing else can ever be signed by it.
type authority struct {
	// hosts are the DNS names that the API server may use; the first is
	// checked when a certificate is found.
	hosts []string
}

// newAuthority serves the Service, and the host of an URL if one is given.
func newAuthority(service, namespace, address string) (authority, error) {
	inCluster := fmt.Sprintf("%s.%s.svc", service, namespace)
	if address == "" {
		return authority{hosts: []string{inCluster}}, nil
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return authority{}, fmt.Errorf("webhook URL: %w", err)
	}
	host := parsed.Hostname()
	if parsed.Scheme != "https" || host == "" || net.ParseIP(host) != nil {
		return authority{}, fmt.Errorf("webhook URL %s: give https, a host name (not an IP address) and a port, as in https://localhost:9443", address)
	}
	return authority{hosts: []string{host, inCluster}}, nil
}

// valid reports whether a Secret's certificate needs no renewal yet.
func (a authority) valid(data map[string][]byte, now time.Time) bool {
	pair, err := keyPair(data)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(data[caKey]) {
		return false
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: a.hosts[0], Roots: roots, CurrentTime: now.Add(renewBefore)})
	return err == nil
}

// issue makes a certificate and its CA. The CAs trusted so far stay in the
// Secret, to be trusted until the new one has reached everybody.
func (a authority) issue(now time.Time, trusted ...[]byte) (map[string][]byte, error) {
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outrigger-webhook-ca", Organization: []string{"outrigger"}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(certificateLifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKeys, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the webhook's CA: %w", err)
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKeys.Public(), caKeys)
	if err != nil {
		return nil, fmt.Errorf("make the webhook's CA: %w", err)
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		return nil, fmt.Errorf("make the webhook's CA: %w", err)
	}
	certificate, key, err := a.sign(ca, caKeys)
	if err != nil {
		return nil, fmt.Errorf("make the webhook's certificate: %w", err)
	}
	data := map[string][]byte{caKey: encodePEM("CERTIFICATE", caDER), corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	if previous := joinCAs(trusted); len(previous) > 0 {
		data[previousCAKey] = previous
	}
	return data, nil
}

// sign makes a certificate that lives as long as its CA, and its key.
func (a authority) sign(ca *x509.Certificate, signer *ecdsa.PrivateKey) (certificate, key []byte, err error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: a.hosts[0]}, DNSNames: a.hosts,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, made.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("CERTIFICATE", der), encodePEM("PRIVATE KEY", keyDER), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func joinCAs(all [][]byte) []byte {
	var joined []byte
	for _, ca := range all {
		if !bytes.Contains(joined, ca) {
			joined = append(joined, ca...)
		}
	}
	return joined
}

// bundle is what the API server is to trust: the CA, and those before while
// they last.
func bundle(data map[string][]byte, now time.Time) []byte {
	trusted := bytes.Clone(data[caKey])
	rest := data[previousCAKey]
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return trusted
		}
		before, err := x509.ParseCertificate(block.Bytes)
		if err == nil && !now.After(before.NotAfter) {
			trusted = append(trusted, pem.EncodeToMemory(block)...)
		}
	}
}

func keyPair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the webhook's certificate: %w", err)
	}
	return &pair, nil
}
