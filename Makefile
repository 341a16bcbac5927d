SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What the user may set.
WORKERS ?= 2
KUBECONFIG ?=
ROLE ?=
PODS ?= 1000
WINDOW ?= 10%
HOT ?=
IDEAL ?= true
ROUNDS ?= 3
FUZZTIME ?= 5m
RELEASE ?=
BATCHES ?= 0
RUN ?=
SEED ?= 1
FAULTS ?= 100
DURATION ?= 30m
FLAGS ?=
# What a release calls itself, such as v0.2.0; empty: by its commit.
OUTRIGGER_VERSION ?=
# Where programs come from: auto, download or build. V=1 shows more.
TOOLS ?= auto
export TOOLS
V ?=
export V

controlplane := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok temporal
temporalcluster := temporal-server temporal-sql-tool

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile

.PHONY: tools
tools: ## Put etcd, Kubernetes, KWOK, Temporal and the linters into bin/ (TOOLS=auto: there, downloaded or compiled; download; build)
	@tools/build.sh

.PHONY: controlplane
controlplane:
	@tools/build.sh $(controlplane)

.PHONY: build
build: bin/stack ## Build outrigger and the kubectl plugin into bin/
	go build $(release) -o bin/ ./cmd/outrigger ./cmd/kubectl-sidecarset

# go build decides whether anything is to be done.
.PHONY: bin/stack
bin/stack:
	@go build -o bin/stack ./dev/stack

release := $(if $(OUTRIGGER_VERSION),-ldflags '-X github.com/outrigger/outrigger/version.version=$(OUTRIGGER_VERSION)')

versions := v1alpha1 v1beta1

# $(call generate,folder of the versions' deepcopy files,folder of the CRD,reference of its fields)
define generate
$(foreach v,$(versions),bin/controller-gen object paths=./api/$(v) output:object:dir=$(1)/$(v)
)bin/controller-gen crd $(versions:%=paths=./api/%) output:crd:dir=$(2)
go run ./dev/definition --crd=$(2)/apps.kruise.io_sidecarsets.yaml --reference=$(3)
endef

.PHONY: generate
generate: ## Write the deepcopy functions, the CRD and the reference of its fields
	@tools/build.sh controller-gen
	$(call generate,api,config/crd/bases,docs/reference.md)

.PHONY: verify
verify: ## Fail when generated files, formatting, go.mod or the manifests are not as they should be
	@tools/build.sh controller-gen kubectl
	@rm -rf bin/.generated
	$(call generate,bin/.generated/api,bin/.generated/crd,bin/.generated/reference.md)
	@$(foreach v,$(versions),diff {bin/.generated/,}api/$(v)/zz_generated.deepcopy.go && \
	)diff -r bin/.generated/crd config/crd/bases && diff bin/.generated/reference.md docs/reference.md || { echo "verify: generated files are out of date; run make generate"; exit 1; }
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "verify: run make fmt for" $$unformatted; exit 1; }
	go mod tidy -diff
	cd tools && go mod tidy -diff
	@for dir in default monitoring; do bin/kubectl kustomize config/$$dir >/dev/null || exit 1; done

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w .

.PHONY: lint
lint: ## Run the linters, also the one for workflow code
	@tools/build.sh golangci-lint workflowcheck
	bin/golangci-lint run --allow-parallel-runners
	bin/workflowcheck ./workflows/...

# What decides, in seconds: no API server, no Temporal, no tools that are not there yet.
.PHONY: precommit
precommit: ## Check what takes less than a minute: formatting, vet, lint, and the tests of what decides
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "precommit: run make fmt for" $$unformatted; exit 1; }
	go vet ./...
	@[ ! -x bin/golangci-lint ] || bin/golangci-lint run --allow-parallel-runners
	go test ./api/... ./internal/... ./cli/... ./workflows ./test/architecture ./test/conformance

.PHONY: test
test: controlplane build ## Run all tests
	@tools/build.sh helm
	go test -timeout 40m ./...

.PHONY: record-histories new-release
record-histories: new-release controlplane build ## Record runs of a release, for later ones to replay (RELEASE=v0.2.0)
	go test -tags record ./test/integration -count=1 -run '^TestRecordHistories$$' -release '$(RELEASE)'
	go test ./workflows -run RecordedHistories
	bin/kubectl kustomize config/default >test/manifests/testdata/releases/$(RELEASE).yaml

# Asked first, so that nobody builds in vain.
new-release:
	@[ ! -e 'workflows/testdata/histories/$(or $(RELEASE),$(error which one? for example: make record-histories RELEASE=v0.2.0))' ] || \
	{ echo 'record-histories: those of $(RELEASE) are recorded already, and must stay as they are'; exit 1; }

# The tests of the tag take processes of Temporal away, which the dev server does not have;
# the UI is the dev server's.
.PHONY: test-cluster
test-cluster: controlplane build ## Run the integration tests and the bench on a Temporal cluster (RUN=TestTemporalCluster)
	@tools/build.sh $(temporalcluster)
	OUTRIGGER_TEMPORAL=cluster go test -timeout 40m -tags temporalcluster ./test/integration -skip '^TestWebUI$$' $(if $(RUN),-run '$(RUN)')
	OUTRIGGER_TEMPORAL=cluster go run ./dev/bench --pods=200 --rounds=1

# Asked first, so that nobody builds in vain.
.PHONY: machine
machine:
	@go build -o bin/node/check ./dev/realnode/check && bin/node/check

# The programs of the images are static: nothing else is in there.
.PHONY: e2e-node
e2e-node: machine controlplane build ## Try rollouts and the installation on a real node: containerd and a kubelet; needs root (RUN=TwentyPods measures)
	@tools/build.sh kubelet helm
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/node/ ./cmd/outrigger ./test/e2e/container ./examples/hot-upgrade/sidecar ./examples/hot-upgrade/empty
	go test -tags e2e -timeout 40m -count=1 -v -p 1 ./test/e2e/... $(if $(RUN),-run '$(RUN)' -bench '$(RUN)' -benchtime 1x)

.PHONY: up
up: controlplane build ## Start the local stack: Kubernetes, Temporal, Outrigger (WORKERS=2)
	@bin/stack up --detach --workers=$(WORKERS)

.PHONY: temporal-cluster
temporal-cluster: controlplane build ## Start the local stack with Temporal's own server on PostgreSQL, not the dev server
	@tools/build.sh $(temporalcluster)
	@bin/stack up --detach --workers=$(WORKERS) --temporal=cluster

.PHONY: down
down: bin/stack ## Stop the local stack
	@bin/stack down

.PHONY: status
status: bin/stack ## List the processes of the local stack
	@bin/stack status

.PHONY: stop kill start
stop: ## End a process with SIGTERM: ROLE=operator, worker, worker-2, webhook, temporal, temporal-history-1, postgres, etcd, ...
kill: ## End a process with SIGKILL: ROLE=...
start: ## Start a process again: ROLE=...
stop kill start: bin/stack
	@bin/stack $@ $(or $(ROLE),$(error which one? for example: make $@ ROLE=worker-1))

.PHONY: run
run: build ## Run the roles here against the cluster of KUBECONFIG=... (TEMPORAL_ADDRESS, WEBHOOK_URL, WEBHOOK_FLAGS, ...)
	@tools/build.sh kubectl
	@bin/stack run --kubeconfig=$(KUBECONFIG)

# Said before anything is done.
missing = $(filter-out $(notdir $(wildcard $(controlplane:%=bin/%))),$(controlplane))
define demoahead
demo: $(if $(missing),$(words $(missing)) of $(words $(controlplane)) programs are not in bin/: a minute or two if they can be downloaded$(,) about twelve to compile,all programs are there).
demo: Outrigger is compiled: $(if $(wildcard bin/outrigger),seconds,some two minutes on two cores the first time); the rollout takes half a minute.
endef
, := ,

.PHONY: demo demo-outrigger
demo: ## Show a rollout on the local stack, a line for each step (V=1 for more)
	$(info $(demoahead))@$(MAKE) --no-print-directory -j2 controlplane demo-outrigger
	@bin/stack demo
# Beside the downloads: it waits for the processors, they for the network.
demo-outrigger:
	@dev/step.sh 'Outrigger is compiled' go build -o bin/ ./cmd/outrigger ./dev/stack

.PHONY: demo-picture
demo-picture: controlplane build ## Record the demo as docs/images/demo.svg
	@bin/stack demo --picture=docs/images/demo.svg

.PHONY: bench-rollout
bench-rollout: controlplane build ## Measure a rollout (PODS=1000 WINDOW=10% HOT= IDEAL=true ROUNDS=3)
	go run ./dev/bench --pods=$(PODS) --window=$(WINDOW) --ideal=$(IDEAL) --rounds=$(ROUNDS) $(if $(HOT),--hot)

.PHONY: bench-admission
bench-admission: controlplane build ## Measure the admission of pods, over TLS
	go run ./dev/bench/admission

.PHONY: simulate
simulate: ## Simulate a rollout to very many pods (PODS=100000 WINDOW=5% BATCHES=0: all)
	go run ./dev/scale --pods=$(PODS) --window=$(WINDOW) --batches=$(BATCHES)

.PHONY: screenshot
screenshot: controlplane build ## Take the pictures of Temporal's UI in docs/images anew (needs chromium)
	go test ./test/integration -count=1 -run TestWebUI -args -screenshots=$(CURDIR)/docs/images

.PHONY: chaos
chaos: controlplane build ## Disturb a whole installation and check what it promises (SEED=1 FAULTS=100)
	go run ./dev/chaos --seed=$(SEED) --faults=$(FAULTS)

.PHONY: bench-restart
bench-restart: controlplane build ## Measure what a rolling restart costs a rollout (PODS=1000)
	go run ./dev/chaos restart --pods=$(PODS)

.PHONY: soak
soak: controlplane build ## Edit for a long time and see what grows (DURATION=30m)
	go run ./dev/chaos soak --seed=$(SEED) --duration=$(DURATION)

.PHONY: bench-idle-sets bench-create-sets bench-fleet bench-rest bench-start
bench-idle-sets: controlplane build ## Measure a rollout alone, and beside 1,000 idle SidecarSets (FLAGS='--pods=200 --sets=20')
	@$(call fleet,idle-sets)
bench-create-sets: controlplane build ## Measure the creation of 500 SidecarSets (FLAGS='--sets=20')
	@$(call fleet,create-sets)
bench-fleet: controlplane build ## Measure 50 SidecarSets that roll out together over 5,000 pods (FLAGS='--max-unavailable-pods=100')
	@$(call fleet,rollouts)
bench-rest: controlplane build ## Measure 500 SidecarSets with 10,000 pods at rest (FLAGS='--duration=1m')
	@$(call fleet,rest)
bench-start: controlplane build ## Measure how each role starts again during a rollout of 10,000 pods (FLAGS='--pods=200')
	@$(call fleet,start)

# What go run starts has another exit code than its own.
# $(call fleet,subcommand)
define fleet
go build -o bin/fleet ./dev/bench/fleet && bin/fleet $(1) $(FLAGS)
endef

.PHONY: fuzz
fuzz: ## Fuzz injection and the pod webhook (FUZZTIME=5m each)
	go test ./internal/inject -run '^$$' -fuzz FuzzInjection -fuzztime $(FUZZTIME)
	go test ./webhook/pods -run '^$$' -fuzz FuzzPods -fuzztime $(FUZZTIME)
	go test ./webhook/pods -run '^$$' -fuzz FuzzReviews -fuzztime $(FUZZTIME)

# Images from scratch hold no libraries.
.PHONY: static
static:
	@CGO_ENABLED=0 go build -trimpath $(release) -o bin/static/ ./cmd/outrigger ./dev/compose/controlplane ./dev/compose/probe

# Asked first, so that nobody waits for programs that no engine will run.
.PHONY: engine
engine:
	@dev/compose/compose.sh engine

.PHONY: compose
compose: engine controlplane static ## Run everything in containers
	@dev/compose/compose.sh up

.PHONY: compose-down
compose-down: ## Remove the containers; their data stays
	@dev/compose/compose.sh down

.PHONY: compose-test
compose-test: engine controlplane static ## Try everything in containers and remove it again
	@dev/compose/compose.sh test
