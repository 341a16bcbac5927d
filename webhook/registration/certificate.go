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

// These are the keys of the Secret in addition to the standard keys of TLS Secrets.
const (
	caKey         = "ca.crt"
	previousCAKey = "ca-previous.crt"
)

const (
	certificateLifetime = 365 * 24 * time.Hour
	// renewBefore is the remaining lifetime at which a certificate is replaced. API servers trust the
	// replaced certificate until its expiry.
	renewBefore = 90 * 24 * time.Hour
	// backdated is the time from the start of the validity of a certificate to its issue. Certificates are
	// backdated because the clock of the issuing replica may be ahead of other clocks.
	backdated = 365 * 24 * time.Hour
)

// issuer issues serving certificates. Each certificate is self-signed, and also serves as the CA.
// Therefore, no separate CA key exists.
type issuer struct {
	// hosts are the DNS names of the webhook. A stored certificate must have the first DNS name.
	hosts []string
}

// newIssuer returns an issuer for the Service and, if address is not empty, for the host of the URL
// address. newIssuer returns an error if address is not an https URL with a host name.
func newIssuer(service, namespace, address string) (issuer, error) {
	inCluster := fmt.Sprintf("%s.%s.svc", service, namespace)
	if address == "" {
		return issuer{hosts: []string{inCluster}}, nil
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return issuer{}, fmt.Errorf("webhook URL: %w", err)
	}
	host := parsed.Hostname()
	if parsed.Scheme != "https" || host == "" || net.ParseIP(host) != nil {
		return issuer{}, fmt.Errorf("webhook URL %s: give https, a host name (not an IP address) and a port, as in https://localhost:9443", address)
	}
	return issuer{hosts: []string{host, inCluster}}, nil
}

// verify returns an error if the certificate of a Secret is not valid at each of the times. verify uses the
// intermediate certificates in the Secret, because the server sends these certificates to API servers.
func (i issuer) verify(data map[string][]byte, times ...time.Time) error {
	pair, err := keyPair(data)
	if err != nil {
		return err
	}
	return i.verifyPair(pair, data[caKey], times...)
}

func (i issuer) verifyPair(pair *tls.Certificate, ca []byte, times ...time.Time) error {
	options := x509.VerifyOptions{DNSName: i.hosts[0], Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	if !options.Roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("entry %s contains no CA", caKey)
	}
	for _, der := range pair.Certificate[1:] {
		if intermediate, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(intermediate)
		}
	}
	for _, options.CurrentTime = range times {
		if _, err := pair.Leaf.Verify(options); err != nil {
			return err
		}
	}
	return nil
}

// issue returns the data of a Secret with a new certificate. The previous CAs in the Secret are the CAs in
// trusted.
func (i issuer) issue(now time.Time, trusted ...[]byte) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the webhook's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: i.hosts[0], Organization: []string{"outrigger"}}, DNSNames: i.hosts,
		NotBefore: now.Add(-backdated), NotAfter: now.Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("issue the webhook's certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the webhook's key: %w", err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	data := map[string][]byte{
		caKey: certificate, corev1.TLSCertKey: certificate,
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	for _, ca := range certificates(trusted...) {
		data[previousCAKey] = add(data[previousCAKey], ca)
	}
	return data, nil
}

// bundle returns the CA of a Secret, the previous CAs of the Secret, and the CAs that API servers already
// trust. Replicas may still serve certificates of previous CAs. bundle omits previous and trusted CAs that
// have expired.
func bundle(data map[string][]byte, trusted []*x509.Certificate, now time.Time) []byte {
	var result []byte
	for _, ca := range certificates(data[caKey]) {
		result = add(result, ca)
	}
	for _, previous := range append(certificates(data[previousCAKey]), trusted...) {
		if !now.After(previous.NotAfter) {
			result = add(result, previous)
		}
	}
	return result
}

// certificates returns the certificates of PEM texts. The texts are not joined, because another controller may
// have written a text with comments or without a final newline.
func certificates(texts ...[]byte) (all []*x509.Certificate) {
	for _, rest := range texts {
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
				all = append(all, certificate)
			}
		}
	}
	return all
}

func encode(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// add appends certificate to bundle, unless bundle contains certificate.
func add(bundle []byte, certificate *x509.Certificate) []byte {
	if one := encode(certificate); !bytes.Contains(bundle, one) {
		return append(bundle, one...)
	}
	return bundle
}

func keyPair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the webhook's certificate: %w", err)
	}
	return &pair, nil
}
