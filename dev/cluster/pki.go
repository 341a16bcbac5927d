package cluster

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const validFor = 10 * 365 * 24 * time.Hour

// authority is the one CA of a cluster. Keys in its folder are kept and
// certificates are written anew at every start.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// identity says whom a certificate is for.
type identity struct {
	// user is the common name, and groups the organizations: the API server's
	// user and groups for a client certificate.
	user   string
	groups []string
	// hosts are the names and addresses that a serving certificate is valid for.
	hosts []string
}

// openAuthority makes the CA in dir, with the key that is there.
func openAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	key, err := a.loadKey("ca")
	if err != nil {
		return nil, err
	}
	a.key = key
	if a.cert, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "outrigger-local"}, key); err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	return a, a.write("ca", a.cert)
}

// issue writes <file>.crt and, unless it is there, <file>.key.
func (a *authority) issue(file string, who identity) error {
	key, err := a.loadKey(file)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: who.user, Organization: who.groups},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     now.Add(validFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range who.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", who.user, err)
	}
	return a.write(file, &x509.Certificate{Raw: der})
}

// loadKey returns the key of <file>.key, which it makes when it is missing.
func (a *authority) loadKey(file string) (crypto.Signer, error) {
	data, _, err := keyutil.LoadOrGenerateKeyFile(a.keyFile(file))
	if err != nil {
		return nil, fmt.Errorf("load or make %s: %w", a.keyFile(file), err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s (remove it to have it made anew): %w", a.keyFile(file), err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse %s (remove it to have it made anew): a %T cannot sign", a.keyFile(file), parsed)
	}
	return key, nil
}

func (a *authority) write(file string, certificate *x509.Certificate) error {
	data, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return fmt.Errorf("encode the certificate %s: %w", file, err)
	}
	if err := cert.WriteCert(a.certFile(file), data); err != nil {
		return fmt.Errorf("write the certificate %s: %w", file, err)
	}
	return nil
}

func (a *authority) certFile(name string) string { return filepath.Join(a.dir, name+".crt") }
func (a *authority) keyFile(name string) string  { return filepath.Join(a.dir, name+".key") }
