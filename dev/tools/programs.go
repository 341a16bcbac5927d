package main

import (
	"fmt"
	"strings"
)

// kubernetes is what tools/go.mod requires; a program compiled from there must be told.
const kubernetes = "v1.36.3"

// program is one file of bin/.
type program struct {
	name string
	// pkg is compiled in the module of tools/, or at version.
	pkg, version string
	// minutes to compile with cold caches on two cores.
	minutes float64
	// optional programs are installed when named only.
	optional bool
	// asks are the arguments that make it print its version; none: --version.
	asks []string
	// fits is what it must print then. Empty: only a compiled one will do.
	fits string
	// sources are tried in this order.
	sources []source
}

// source is a file that a publisher offers. In each path {os} and {arch} stand for
// the platform.
type source struct {
	site site
	path string
	// member is the program's path in the archive; empty: the file is the program.
	member string
	// sums is the publisher's list of checksums, for files that are not pinned.
	// Empty: they must be.
	sums string
}

// site names what a variable may replace by a mirror.
type site string

const (
	githubSite     site = "TOOLS_GITHUB_URL"
	kubernetesSite site = "TOOLS_KUBERNETES_URL"
)

func sites(lookup func(string) string) map[site]string {
	all := map[site]string{githubSite: "https://github.com", kubernetesSite: "https://dl.k8s.io"}
	for one := range all {
		if mirror := lookup(string(one)); mirror != "" {
			all[one] = strings.TrimSuffix(mirror, "/")
		}
	}
	return all
}

// programs are listed in the order in which they are installed.
func programs() []program {
	const server = "Kubernetes v1.36."
	return []program{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", minutes: 0.5, fits: "etcd Version: 3.6.", sources: []source{envtest("etcd"), {
			site: githubSite, path: "etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-{os}-{arch}.tar.gz",
			member: "etcd-v3.6.8-{os}-{arch}/etcd", sums: "etcd-io/etcd/releases/download/v3.6.8/SHA256SUMS",
		}}},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", minutes: 4, fits: server, sources: []source{envtest("kube-apiserver"), release("kube-apiserver")}},
		{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", minutes: 1, fits: server, sources: []source{release("kube-controller-manager")}},
		{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", minutes: 0.5, fits: server, sources: []source{release("kube-scheduler")}},
		// Needs a container runtime and root.
		{name: "kubelet", pkg: "k8s.io/kubernetes/cmd/kubelet", minutes: 1, optional: true, fits: server, sources: []source{release("kubelet")}},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl", minutes: 0.5, asks: []string{"version", "--client"}, fits: "Client Version: v1.36.", sources: []source{envtest("kubectl"), release("kubectl")}},
		{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok", version: "v0.8.0", minutes: 2.5, fits: "kwok version v0.8.", sources: []source{{site: githubSite, path: "kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-{os}-{arch}"}}},
		{name: "temporal", pkg: "github.com/temporalio/cli/cmd/temporal", version: "v1.5.1", minutes: 2.5, fits: "Server 1.29.", sources: []source{{
			site: githubSite, path: "temporalio/cli/releases/download/v1.5.1/temporal_cli_1.5.1_{os}_{arch}.tar.gz", member: "temporal",
		}}},
		// Need PostgreSQL.
		{name: "temporal-server", pkg: "go.temporal.io/server/cmd/server", version: "v1.29.1", minutes: 3, optional: true},
		{name: "temporal-sql-tool", pkg: "go.temporal.io/server/cmd/tools/sql", version: "v1.29.1", minutes: 0.5, optional: true},
		{name: "helm", pkg: "helm.sh/helm/v4/cmd/helm", version: "v4.3.1", minutes: 2},
		{name: "controller-gen", pkg: "sigs.k8s.io/controller-tools/cmd/controller-gen", version: "v0.23.0", minutes: 0.5, fits: "Version: v0.23.0"},
		{name: "workflowcheck", pkg: "go.temporal.io/sdk/contrib/tools/workflowcheck", version: "v0.6.0", minutes: 0.2},
		{name: "golangci-lint", pkg: "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", version: "v2.15.0", minutes: 4, fits: "has version 2.15.0 ", sources: []source{{
			site: githubSite, path: "golangci/golangci-lint/releases/download/v2.15.0/golangci-lint-2.15.0-{os}-{arch}.tar.gz",
			member: "golangci-lint-2.15.0-{os}-{arch}/golangci-lint", sums: "golangci/golangci-lint/releases/download/v2.15.0/golangci-lint-2.15.0-checksums.txt",
		}}},
	}
}

// envtest is the archive of etcd, kube-apiserver and kubectl that controller-tools
// publishes for tests: compressed, and for macOS too.
func envtest(name string) source {
	return source{
		site: githubSite, path: "kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/envtest-v1.36.2-{os}-{arch}.tar.gz",
		member: "controller-tools/envtest/" + name,
	}
}

func release(name string) source {
	path := fmt.Sprintf("release/%s/bin/{os}/{arch}/%s", kubernetes, name)
	return source{site: kubernetesSite, path: path, sums: path + ".sha256"}
}

// on returns the source for a platform.
func (s source) on(os, arch string) source {
	fill := strings.NewReplacer("{os}", os, "{arch}", arch)
	s.path, s.member, s.sums = fill.Replace(s.path), fill.Replace(s.member), fill.Replace(s.sums)
	return s
}
