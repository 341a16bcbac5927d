package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	admin             = "admin"
	serviceAccountKey = "sa"
)

// kubeconfigFile is where the kubeconfig of a user of the cluster is written.
// The admin's lies on top, for people.
func (c *Cluster) kubeconfigFile(user string) string {
	if user == admin {
		return c.Kubeconfig
	}
	return filepath.Join(c.options.Dir, certsDir, user+".kubeconfig")
}

func (c *Cluster) writeKubeconfig(user string, credentials *api.AuthInfo) error {
	config := api.NewConfig()
	config.Clusters["outrigger-local"] = &api.Cluster{
		Server:               "https://" + loopback(c.at.apiServer),
		CertificateAuthority: c.ca.certFile("ca"),
	}
	config.AuthInfos[user] = credentials
	config.Contexts["outrigger-local"] = &api.Context{Cluster: "outrigger-local", AuthInfo: user}
	config.CurrentContext = "outrigger-local"
	if err := api.FlattenConfig(config); err != nil { // so that the file works when copied elsewhere
		return fmt.Errorf("read the credentials of %s: %w", user, err)
	}
	if err := clientcmd.WriteToFile(*config, c.kubeconfigFile(user)); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}

// IssueKubeconfig lets a further user sign in, as a member of the groups, and returns the
// path of its kubeconfig. What the user may do is for RBAC to say.
func (c *Cluster) IssueKubeconfig(user string, groups ...string) (string, error) {
	file := strings.ReplaceAll(user, ":", "-")
	if err := c.ca.issue(file, identity{user: user, groups: groups}); err != nil {
		return "", err
	}
	credentials := &api.AuthInfo{ClientCertificate: c.ca.certFile(file), ClientKey: c.ca.keyFile(file)}
	return c.kubeconfigFile(file), c.writeKubeconfig(file, credentials)
}

// writeIdentities issues the certificates of the control plane and the
// kubeconfigs of those of its users that sign in with one.
func (c *Cluster) writeIdentities() error {
	hosts := append([]string{"127.0.0.1", "localhost", "kubernetes.default.svc"}, c.options.Hosts...)
	if err := c.ca.issue(APIServer, identity{user: "kube-apiserver", hosts: hosts}); err != nil {
		return err
	}
	if _, err := c.ca.loadKey(serviceAccountKey); err != nil {
		return err
	}
	masters := []string{"system:masters"}
	for _, who := range []struct {
		file string
		identity
	}{
		{admin, identity{user: "admin", groups: masters}},
		{ControllerManager, identity{user: "system:kube-controller-manager"}},
		{Scheduler, identity{user: "system:kube-scheduler"}},
		{KWOK, identity{user: "kwok", groups: masters}},
	} {
		if err := c.ca.issue(who.file, who.identity); err != nil {
			return err
		}
		credentials := &api.AuthInfo{ClientCertificate: c.ca.certFile(who.file), ClientKey: c.ca.keyFile(who.file)}
		if err := c.writeKubeconfig(who.file, credentials); err != nil {
			return err
		}
	}
	return nil
}
