#!/usr/bin/env bash
# This script runs all containers of docker-compose.yaml, with the installed Docker engine and the installed
# Docker Compose.
# usage: dev/compose/compose.sh engine|up|down|test
set -euo pipefail
cd "$(dirname "$0")/../.."

# By default, the images contain the programs that make has built. PROGRAMS=registry uses images
# of registries.
export PROGRAMS=${PROGRAMS:-built}
healthy_within=120 # seconds
kubeconfig=.run/compose/kubeconfig

fail() {
	echo "compose: $*" >&2
	exit 1
}

# find_engine sets the variable compose. If a program is missing, find_engine fails with a message.
find_engine() {
	local said
	said=$(docker version 2>&1 >/dev/null) ||
		fail "no Docker engine responds (${said##*$'\n'}); start one or set DOCKER_HOST, or run 'make up', which needs none"
	if docker compose version >/dev/null 2>&1; then
		compose=(docker compose --profile all)
	elif docker-compose version >/dev/null 2>&1; then
		compose=(docker-compose --profile all)
		# docker-compose 1.29 builds with the Docker client. A newer client requires BuildKit,
		# which may not be installed.
		docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
	else
		fail "no Docker Compose is there; install the plugin (docker compose) or docker-compose 1.29"
	fi
}

# await WHAT SECONDS COMMAND... repeats the command until it succeeds.
await() {
	local what=$1 deadline=$((SECONDS + $2))
	shift 2
	until "$@" 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || fail "not in time: $what"
		sleep 0.5
	done
}

all_healthy() {
	local states
	states=$("${compose[@]}" ps --all --quiet | xargs docker inspect --format '{{.State.Status}} {{.State.Health.Status}}')
	! grep -qvx 'running healthy' <<<"$states"
}

up() {
	"${compose[@]}" build
	local began=$SECONDS
	timeout $healthy_within "${compose[@]}" up --detach || fail "not up after $((SECONDS - began)) s"
	await "every container is healthy" $((began + healthy_within - SECONDS)) all_healthy
	echo "all containers are healthy after $((SECONDS - began)) s"
	mkdir -p "$(dirname $kubeconfig)"
	(umask 077 && "${compose[@]}" exec -T controlplane kubectl config view --raw >$kubeconfig)
	kubectl config set-cluster outrigger-local --server="https://$("${compose[@]}" port controlplane 6443)" >/dev/null
}

kubectl() { bin/kubectl --kubeconfig=$kubeconfig "$@"; }

injects() {
	kubectl create --dry-run=server -f dev/compose/example/pod.yaml --output=jsonpath='{.spec.containers[*].name}' | grep -qw sidecar
}

# try_it runs all containers in a separate project, on free ports, and removes the project.
try_it() {
	compose+=(--project-name "outrigger-test-$$")
	kubeconfig=$(mktemp)
	export OUTRIGGER_TEMPORAL_PORT=0 OUTRIGGER_UI_PORT=0 OUTRIGGER_KUBERNETES_PORT=0
	trap clean_up EXIT
	up
	kubectl create -f dev/compose/example/sidecarset.yaml
	await "the webhook knows the SidecarSet" 30 injects
	kubectl create -f dev/compose/example/pod.yaml
	kubectl wait --for=condition=Ready --timeout=60s pod/compose-test
	injected=$(kubectl get pod compose-test --output=jsonpath='{.spec.containers[*].name}')
	grep -qw sidecar <<<"$injected" || fail "the pod has the containers $injected, and no sidecar"
	echo "injected: $injected"
	kubectl patch sidecarset compose-test --type=json \
		--patch='[{"op": "replace", "path": "/spec/containers/0/image", "value": "sidecar:v2"}]'
	kubectl wait --for=jsonpath='{.spec.containers[?(@.name=="sidecar")].image}'=sidecar:v2 --timeout=60s pod/compose-test
	bin/static/probe "http://$("${compose[@]}" port temporal 8233)"
	echo "the Temporal UI answers"
}

clean_up() {
	local status=$?
	trap - EXIT
	[ $status -eq 0 ] || "${compose[@]}" logs --tail=50 >&2
	"${compose[@]}" down --volumes --timeout=30 || status=1
	rm -f "$kubeconfig"
	exit $status
}

find_engine
case ${1:-} in
engine) ;;
up)
	up
	cat <<-SUMMARY

		  Temporal UI   http://$("${compose[@]}" port temporal 8233)
		  kubeconfig    $kubeconfig

		Try:
		  export KUBECONFIG=$kubeconfig
		  bin/kubectl get nodes
		  make compose-down
	SUMMARY
	;;
down) "${compose[@]}" down ;;
test) try_it ;;
*) fail "usage: dev/compose/compose.sh engine|up|down|test" ;;
esac
