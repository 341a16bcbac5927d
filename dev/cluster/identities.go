package cluster

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// All clients use the token of the admin. A client of another user impersonates this user, and therefore has
// only the permissions of this user.
const (
	admin     = "admin"
	masters   = "system:masters"
	tokenFile = "tokens.csv"
	// certificateAge is the age after which a start replaces the certificate. The certificate is valid for a
	// year.
	certificateAge = 180 * 24 * time.Hour
)

func (c *Cluster) certificate(file string) string {
	return filepath.Join(c.options.Dir, certsDir, file)
}

// writeIdentities writes the certificate and the token file of the API server, and the kubeconfigs of the
// users that every cluster has. The key of the certificate also signs tokens of service accounts.
// The certificate and the token of an earlier start are kept, because clients on other machines use them.
func (c *Cluster) writeIdentities() error {
	if err := os.MkdirAll(c.certificate(""), 0o755); err != nil {
		return fmt.Errorf("create the directory of certificates: %w", err)
	}
	if info, err := os.Stat(c.certificate("apiserver.crt")); err != nil || time.Since(info.ModTime()) > certificateAge {
		if err := c.writeCertificate(); err != nil {
			return err
		}
	}
	line, err := os.ReadFile(c.certificate(tokenFile))
	if err != nil {
		line = fmt.Appendf(nil, "%s,%s,%s,%s\n", rand.Text(), admin, admin, masters)
		if err := os.WriteFile(c.certificate(tokenFile), line, 0o600); err != nil {
			return fmt.Errorf("write the token file: %w", err)
		}
	}
	c.token, _, _ = strings.Cut(string(line), ",")
	users := map[string]string{
		c.Kubeconfig: admin, c.kubeconfigFile(KWOK): admin,
		c.kubeconfigFile(ControllerManager): "system:kube-controller-manager", c.kubeconfigFile(Scheduler): "system:kube-scheduler",
	}
	for _, role := range []string{Operator, Worker, Webhook} {
		users[c.kubeconfigFile(role)] = "system:serviceaccount:" + SystemNamespace + ":outrigger-" + role
	}
	for file, user := range users {
		if err := c.writeKubeconfig(file, user); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeCertificate() error {
	var addresses []net.IP
	names := []string{"localhost", "kubernetes.default.svc"}
	for _, host := range c.options.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			addresses = append(addresses, ip)
		} else {
			names = append(names, host)
		}
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", addresses, names)
	if err != nil {
		return fmt.Errorf("create the certificate of the API server: %w", err)
	}
	for file, data := range map[string][]byte{"apiserver.crt": certificate, "apiserver.key": key} {
		if err := os.WriteFile(c.certificate(file), data, 0o600); err != nil {
			return fmt.Errorf("write the certificate of the API server: %w", err)
		}
	}
	return nil
}

// kubeconfigFile returns the path of the kubeconfig of a user other than the admin.
func (c *Cluster) kubeconfigFile(user string) string { return c.certificate(user + ".kubeconfig") }

func (c *Cluster) writeKubeconfig(file, user string, groups ...string) error {
	authority, err := os.ReadFile(c.certificate("apiserver.crt"))
	if err != nil {
		return fmt.Errorf("read the certificate of the API server: %w", err)
	}
	config := api.NewConfig()
	config.Clusters["outrigger-local"] = &api.Cluster{
		Server: "https://" + c.at(APIServer), CertificateAuthorityData: authority, TLSServerName: "localhost",
	}
	config.AuthInfos[user] = &api.AuthInfo{Token: c.token}
	if user != admin {
		config.AuthInfos[user].Impersonate, config.AuthInfos[user].ImpersonateGroups = user, groups
	}
	config.Contexts["outrigger-local"] = &api.Context{Cluster: "outrigger-local", AuthInfo: user}
	config.CurrentContext = "outrigger-local"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}

// IssueKubeconfig writes a kubeconfig for user, as a member of groups, and returns the path of the file. RBAC
// determines the permissions of the user.
func (c *Cluster) IssueKubeconfig(user string, groups ...string) (string, error) {
	file := c.kubeconfigFile(strings.ReplaceAll(user, ":", "-"))
	return file, c.writeKubeconfig(file, user, groups...)
}
