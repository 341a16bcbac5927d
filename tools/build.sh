#!/usr/bin/env bash
# This script installs programs for tests, linting and the local stack into bin/. The script installs only
# programs that are missing or have another version, so a complete bin/ needs no network. The script downloads a
# program from its publisher if possible, and otherwise compiles the program. With TOOLS=download, the script compiles
# only programs without a download address. The script also accepts a compiled program of the right version that was
# copied from another clone.
# usage: [TOOLS=auto|download|build] [V=1] tools/build.sh [name...]     (default: all programs that are not optional)
# Downloads need curl and tar. The checksums are in tools/checksums.txt. If a checksum is not listed in this
# file, the script uses the checksum that the publisher serves over TLS.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${TOOLS:-auto}
kubernetes=v1.36.3 # as in tools/go.mod
os=$(go env GOOS) arch=$(go env GOARCH)
github=${TOOLS_GITHUB_URL:-https://github.com}
release=${TOOLS_KUBERNETES_URL:-https://dl.k8s.io}/release/$kubernetes/bin/$os/$arch
# controller-tools publishes this archive for tests. The archive contains etcd, kube-apiserver and kubectl.
envtest=$github/kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/envtest-v1.36.2-$os-$arch.tar.gz
all="etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok temporal helm prometheus controller-gen workflowcheck golangci-lint"

fail() {
	echo "tools: $*" >&2
	exit 1
}

# describe NAME sets the variables of a program. package is the Go package that is compiled, at version or, if version
# is empty, in the module of the folder module. sources contains the download addresses, with the path in an archive
# after a "#". A program without sources is always compiled. sums is the address of the publisher's list of checksums.
describe() {
	version= module=tools tags= sources=() sums=
	case $1 in
	etcd) package=go.etcd.io/etcd/server/v3 sources=("$envtest#controller-tools/envtest/etcd") ;;
	kube-apiserver | kubectl) package=k8s.io/kubernetes/cmd/$1 sources=("$envtest#controller-tools/envtest/$1" "$release/$1") sums=$release/$1.sha256 ;;
	kube-controller-manager | kube-scheduler) package=k8s.io/kubernetes/cmd/$1 sources=("$release/$1") sums=$release/$1.sha256 ;;
	kubelet) package=k8s.io/kubernetes/cmd/kubelet sources=("$release/kubelet") sums=$release/kubelet.sha256 ;; # optional
	kwok)
		package=sigs.k8s.io/kwok/cmd/kwok version=v0.8.0
		sources=("$github/kubernetes-sigs/kwok/releases/download/$version/kwok-$os-$arch")
		;;
	temporal)
		package=github.com/temporalio/cli/cmd/temporal version=v1.5.1
		sources=("$github/temporalio/cli/releases/download/$version/temporal_cli_1.5.1_${os}_$arch.tar.gz#temporal")
		;;
	temporal-server) package=go.temporal.io/server/cmd/server version=v1.29.1 ;;       # optional, needs PostgreSQL
	temporal-sql-tool) package=go.temporal.io/server/cmd/tools/sql version=v1.29.1 ;; # optional
	helm) package=helm.sh/helm/v4/cmd/helm version=v4.3.1 ;;
	crane) package=github.com/google/go-containerregistry/cmd/crane version=v0.22.1 ;; # optional
	helm3) package=helm.sh/helm/v3/cmd/helm version=v3.22.0 ;; # optional
	prometheus) # go install rejects the replace directives of Prometheus. The tag omits service discovery.
		package=github.com/prometheus/prometheus/cmd/prometheus module=tools/prometheus tags=remove_all_sd
		local at=$github/prometheus/prometheus/releases/download/v3.13.5 name=prometheus-3.13.5.$os-$arch
		sources=("$at/$name.tar.gz#$name/prometheus") sums=$at/sha256sums.txt
		;;
	controller-gen) package=sigs.k8s.io/controller-tools/cmd/controller-gen version=v0.23.0 ;;
	workflowcheck) package=go.temporal.io/sdk/contrib/tools/workflowcheck version=v0.6.0 ;;
	golangci-lint)
		package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint version=v2.15.0
		local at=$github/golangci/golangci-lint/releases/download/$version name=golangci-lint-2.15.0-$os-$arch
		sources=("$at/$name.tar.gz#$name/golangci-lint") sums=$at/golangci-lint-2.15.0-checksums.txt
		;;
	*) fail "$1: unknown program; there are $all kubelet crane helm3 temporal-server temporal-sql-tool" ;;
	esac
	stamp=@$version
	[ -n "$version" ] || stamp=$(sha256sum $module/go.mod | cut -c1-16)
}

# installed NAME succeeds if bin/ has the right version of the program. With TOOLS=build, the program must also be
# compiled. The stamp contains the version and, for a download, the source in a second line.
installed() {
	local lines=()
	[ -x "bin/$1" ] && [ -e "bin/.stamp/$1" ] || return 1
	mapfile -t lines <"bin/.stamp/$1"
	[ "${lines[0]-}" = "$stamp" ] && { [ $mode != build ] || [ -z "${lines[1]-}" ]; }
}

# recognised NAME succeeds if bin/ has a compiled program of the right version without a stamp, such as a copy from
# another clone, and writes the stamp. The build information of a download does not always contain the version.
recognised() {
	local kind path built of=
	[ -x "bin/$1" ] && [ ! -e "bin/.stamp/$1" ] || return 1
	[ $mode != download ] || [ ${#sources[@]} = 0 ] || return 1
	while read -r kind path built _; do
		case $kind in
		path) [ "$path" = "$package" ] || return 1 ;;
		mod) of="$path $built" ;;
		esac
	done < <(go version -m "bin/$1" 2>/dev/null)
	case $of in
	"") return 1 ;;
	*" $version") ;; # If version is empty, this pattern never matches.
	*) [ -z "$version" ] && grep -qE "^(require)?[[:space:]]+${of//./\\.}( |\$)" $module/go.mod || return 1 ;;
	esac
	mkdir -p bin/.stamp
	echo "$stamp" >"bin/.stamp/$1"
}

# have NAME... succeeds if this machine has all of these programs.
have() {
	local name
	for name; do command -v "$name" >/dev/null || return 1; done
}

# get ADDRESS downloads to stdout. After a failed connection, get does not contact the site again.
declare -A away
get() {
	local site protocols='=http,https' status=0
	site=$(cut -d/ -f1-3 <<<"$1")
	[[ $1 != https://* ]] || protocols='=https'
	[ -z "${away[$site]-}" ] || return 1
	curl --fail --silent --show-error --location --proto '=http,https' --proto-redir "$protocols" --connect-timeout 5 \
		--speed-limit 1000 --speed-time 20 "$1" || status=$?
	case $status in
	0) ;;
	5 | 6 | 7 | 28 | 35) away[$site]=1 ;&
	*) return 1 ;;
	esac
}

# sum_of NAME prints the checksum of a file from the list on stdin, or the only checksum of a list without names.
sum_of() {
	local sum name
	while read -r sum name || [ -n "$sum" ]; do
		case $name in "" | "$1" | "*$1") echo "$sum"; return ;; esac
	done
}

# checksum ADDRESS sets want to the pinned checksum of a download or, without a pin, to the publisher's checksum.
checksum() {
	local path=${1#"$github/"}
	path=${path#"${release%/release/*}/"}
	want=$(sum_of "$path" <tools/checksums.txt)
	if [ -z "$want" ] && [[ $sums == https://* ]]; then
		get "$sums" >"$work/sums" || return
		want=$(sum_of "${path##*/}" <"$work/sums")
	fi
	[[ $want =~ ^[0-9a-f]{64}([0-9a-f]{64})?$ ]] || { echo "tools: no checksum of $1 is pinned, and none can be fetched over https"; return 1; }
}

# fetch SOURCE FILE downloads a program. The script keeps an archive until the script ends, because the archive
# may contain other programs.
fetch() {
	local address=${1%%#*} algorithm=256 got
	local archive=$work/${address##*/}.download
	checksum "$address" || return
	[ ${#want} = 64 ] || algorithm=512
	[ -e "$archive" ] || get "$address" >"$archive" || { rm -f "$archive"; return 1; }
	got=$(sha${algorithm}sum <"$archive")
	[ "${got%% *}" = "$want" ] || { echo "tools: $address has the checksum ${got%% *} instead of $want"; return 1; }
	if [[ $1 == *#* ]]; then
		tar -xzOf "$archive" --wildcards "*${1#*#}" >"$2"
	else
		mv "$archive" "$2"
	fi
}

# compile NAME FILE compiles a program without cgo, so that the program needs no shared libraries.
compile() {
	local component=k8s.io/component-base/version minor=${kubernetes#v1.}
	export CGO_ENABLED=0
	if [ -n "$version" ]; then
		GOBIN=$PWD/$2.install go install -C $module -trimpath -ldflags '-s -w' "$package@$version" && mv "$2".install/* "$2"
	else
		go build -C $module -trimpath -tags "$tags" -o "$PWD/$2" \
			-ldflags "-s -w -X $component.gitVersion=$kubernetes -X $component.gitMajor=1 -X $component.gitMinor=${minor%.*}" "$package"
	fi
}

# install NAME removes the stamp first and writes it last, so that a killed run leaves a program without a stamp.
install() {
	local file=$work/$1 origin= how=compiled began=$SECONDS output source
	if [ $mode != build ] && have curl tar; then
		for source in "${sources[@]}"; do
			! fetch "$source" "$file" || { origin=${source%%#*} how=downloaded; break; }
		done
	fi
	if [ -z "$origin" ]; then
		[ $mode != download ] || [ ${#sources[@]} = 0 ] || fail "TOOLS=$mode: $1 cannot be downloaded"
		if [ -n "${V:-}" ]; then
			compile "$1" "$file"
		else
			output=$(compile "$1" "$file" 2>&1) || fail "compile $1: $output"
		fi
	fi
	chmod 755 "$file"
	printf '%s\n' "$stamp" ${origin:+"downloaded from $origin"} >"$work/stamp"
	rm -f "bin/.stamp/$1"
	mv "$file" "bin/$1"
	mv "$work/stamp" "bin/.stamp/$1"
	printf '  %-24s %s in %d s\n' "$1" $how $((SECONDS - began))
}

case $mode in auto | download | build) ;; *) fail "TOOLS=$mode: use auto, download or build" ;; esac
[ $# -gt 0 ] || set -- $all
missing=()
for name; do
	describe "$name"
	installed "$name" || recognised "$name" || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0
mkdir -p bin/.stamp
exec 9>bin/.lock
! have flock || flock 9 # Only one run at a time may write bin/.
work=bin/.new
rm -rf $work # A killed run may leave this folder.
mkdir $work
trap 'rm -rf $work' EXIT
for name in "${missing[@]}"; do
	describe "$name"
	installed "$name" || install "$name"
done
