#!/usr/bin/env bash
# Builds what tests, linters and the local stack run into bin/: only what is
# missing or of another version, so that a finished bin/ needs no network.
# usage: tools/build.sh [name...]     (default: all of them but the optional ones)
set -euo pipefail
cd "$(dirname "$0")"
bin=$(cd .. && pwd)/bin
mkdir -p "$bin/.stamp"

kubernetes=v1.36.3
controlplane=$(sha256sum go.mod | cut -c1-16)
version_ldflags="-X k8s.io/component-base/version.gitVersion=$kubernetes \
-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

# Built when named only: the kubelet needs a container runtime and root, Temporal's own server PostgreSQL.
optional=" kubelet temporal-server temporal-sql-tool "

# name | package | version (of this folder's go.mod, or after @) | minutes from a cold cache on two cores
list() {
	cat <<-LIST
		etcd|go.etcd.io/etcd/server/v3|$controlplane|0.5
		kube-apiserver|k8s.io/kubernetes/cmd/kube-apiserver|$controlplane|4
		kube-controller-manager|k8s.io/kubernetes/cmd/kube-controller-manager|$controlplane|1
		kube-scheduler|k8s.io/kubernetes/cmd/kube-scheduler|$controlplane|0.5
		kubelet|k8s.io/kubernetes/cmd/kubelet|$controlplane|1
		kubectl|k8s.io/kubernetes/cmd/kubectl|$controlplane|0.5
		kwok|sigs.k8s.io/kwok/cmd/kwok|@v0.8.0|2.5
		temporal|github.com/temporalio/cli/cmd/temporal|@v1.5.1|2.5
		helm|helm.sh/helm/v4/cmd/helm|@v4.3.1|2
		temporal-server|go.temporal.io/server/cmd/server|@v1.29.1|3
		temporal-sql-tool|go.temporal.io/server/cmd/tools/sql|@v1.29.1|0.5
		controller-gen|sigs.k8s.io/controller-tools/cmd/controller-gen|@v0.23.0|0.5
		workflowcheck|go.temporal.io/sdk/contrib/tools/workflowcheck|@v0.6.0|0.2
		golangci-lint|github.com/golangci/golangci-lint/v2/cmd/golangci-lint|@v2.15.0|4
	LIST
}

build() {
	local name=$1 package=$2 version=$3
	case $version in
	@*)
		# go install names a program after its folder.
		GOBIN=$bin/.install CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" "$package$version"
		mv "$bin/.install/$(basename "$package")" "$bin/$name"
		;;
	*) CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $version_ldflags" -o "$bin/$name" "$package" ;;
	esac
}

todo=()
while IFS='|' read -r name package version minutes; do
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
	if [ $# -eq 0 ] && [[ "$optional" == *" $name "* ]]; then continue; fi
	if [ -x "$bin/$name" ] && [ "$(cat "$bin/.stamp/$name" 2>/dev/null)" = "$version" ]; then continue; fi
	todo+=("$name|$package|$version|$minutes")
done < <(list)

[ ${#todo[@]} -eq 0 ] && exit 0
echo "tools: building ${#todo[@]} programs into bin/ (minutes on two cores with cold caches; later runs take seconds):"
for entry in "${todo[@]}"; do
	IFS='|' read -r name package version minutes <<<"$entry"
	printf '  %-24s up to %s min\n' "$name" "$minutes"
done
for entry in "${todo[@]}"; do
	IFS='|' read -r name package version minutes <<<"$entry"
	started=$SECONDS
	build "$name" "$package" "$version"
	echo "$version" >"$bin/.stamp/$name"
	printf '  %-24s built in %ss\n' "$name" $((SECONDS - started))
done
