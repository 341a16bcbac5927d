#!/usr/bin/env bash
# This script builds the kubectl plugin for each platform of config/krew. The script also writes the manifest
# for krew with the checksums of the archives.
# usage: dev/release/plugin.sh VERSION FOLDER
set -euo pipefail
version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
manifest=$folder/sidecarset.yaml
sed "s|VERSION|$version|" config/krew/sidecarset.yaml >"$manifest"
for archive in $(grep -o 'kubectl-sidecarset_[a-z0-9_]*\.tar\.gz' "$manifest"); do
	platform=${archive#kubectl-sidecarset_}
	platform=${platform%.tar.gz}
	os=${platform%_*} arch=${platform#*_}
	program=kubectl-sidecarset
	[ "$os" != windows ] || program+=.exe
	work=$(mktemp -d)
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -ldflags "-s -w" -o "$work/$program" ./cmd/kubectl-sidecarset
	cp LICENSE cmd/kubectl-sidecarset/kubectl_complete-sidecarset "$work"
	tar --sort=name --owner=0 --group=0 --mtime=@0 -C "$work" -czf "$folder/$archive" "$program" kubectl_complete-sidecarset LICENSE
	rm -r "$work"
	sum=$(sha256sum "$folder/$archive" | cut -d' ' -f1)
	sed -i "s|SHA256_${os^^}_${arch^^}|$sum|" "$manifest"
done
if grep -n 'SHA256_\|VERSION' "$manifest"; then
	echo "plugin.sh: the manifest is not complete" >&2
	exit 1
fi
(cd "$folder" && sha256sum -- *.tar.gz >checksums.txt)
