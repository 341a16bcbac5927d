SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The user can set these variables.
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
RUN ?=
SEED ?= 1
FAULTS ?= 100
DURATION ?= 30m
FLAGS ?=
# OUTRIGGER_VERSION is the version of a release, such as v0.2.0. If OUTRIGGER_VERSION is empty, the version is
# the commit.
OUTRIGGER_VERSION ?=
# TOOLS is the source of programs: auto, download or build. V=1 shows more output.
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
tools: ## Put etcd, Kubernetes, KWOK, Temporal and the linters into bin/ (TOOLS=auto: downloaded or compiled; download; build)
	@tools/build.sh

.PHONY: controlplane
controlplane:
	@tools/build.sh $(controlplane)

.PHONY: build
build: ## Build outrigger and the kubectl plugin into bin/
	go build $(release) -o bin/ ./cmd/outrigger ./cmd/kubectl-sidecarset

# The target always runs, because go build decides whether a build is necessary.
.PHONY: bin/stack
bin/stack:
	@go build -o bin/stack ./dev/stack

release := $(if $(OUTRIGGER_VERSION),-ldflags '-X github.com/outrigger/outrigger/version.version=$(OUTRIGGER_VERSION)')

versions := v1alpha1 v1beta1 outrigger/v1alpha1

# $(call generate,folder of the versions' deepcopy files,folder of the CRD,reference of its fields)
define generate
$(foreach v,$(versions),bin/controller-gen object paths=./api/$(v) output:object:dir=$(1)/$(v)
)bin/controller-gen crd $(versions:%=paths=./api/%) output:crd:dir=$(2)
go run ./dev/definition --crds=$(2) --reference=$(3)
endef

.PHONY: generate
generate: ## Write the deepcopy functions, the CRD and the reference of its fields
	@tools/build.sh controller-gen
	$(call generate,api,config/crd/bases,docs/reference.md)

.PHONY: verify
verify: ## Fail when generated files, formatting, go.mod or the manifests are out of date
	@tools/build.sh controller-gen kubectl
	@rm -rf bin/.generated
	$(call generate,bin/.generated/api,bin/.generated/crd,bin/.generated/reference.md)
	@$(foreach v,$(versions),diff {bin/.generated/,}api/$(v)/zz_generated.deepcopy.go && \
	)diff -r bin/.generated/crd config/crd/bases && diff bin/.generated/reference.md docs/reference.md || { echo "verify: generated files are out of date; run make generate"; exit 1; }
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "verify: run make fmt for" $$unformatted; exit 1; }
	go mod tidy -diff
	@for dir in tools tools/prometheus; do (cd $$dir && go mod tidy -diff) || exit 1; done
	@for dir in default monitoring; do bin/kubectl kustomize config/$$dir >/dev/null || exit 1; done

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w .

.PHONY: lint
lint: ## Run the linters, also the one for workflow code
	@tools/build.sh golangci-lint workflowcheck
	bin/golangci-lint run --allow-parallel-runners
	bin/workflowcheck ./workflows/...

# This target needs only seconds, because it starts no API server and no Temporal, and installs no tools.
.PHONY: precommit
precommit: ## Check formatting, vet, lint, and the tests of the pure packages, in less than a minute
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "precommit: run make fmt for" $$unformatted; exit 1; }
	go vet ./...
	@[ ! -x bin/golangci-lint ] || bin/golangci-lint run --allow-parallel-runners
	go test -skip 'ThroughTheAPIServer|EncryptedHistories' ./api/... ./internal/... ./cli/... ./workflows ./test/architecture ./test/conformance

# This target needs Go, git, make and coreutils. All other programs are downloaded or compiled.
.PHONY: test
test: controlplane build ## Run all tests except test-browser, test-large, test-cluster, test-helm3 and e2e-node
	@tools/build.sh helm prometheus
	@tools/test.sh

.PHONY: integration
integration: controlplane build ## Run the integration tests that RUN names, with the current code (RUN=Spec11_2)
	TEMPORAL_CONFIG_FILE=/dev/null go test -count=1 -timeout 60m ./test/integration -run '$(or $(RUN),$(error set RUN, such as RUN=Spec11_2))'

.PHONY: test-large
test-large: controlplane build ## Test policies with hundreds of pods and SidecarSets, in ten minutes (RUN=TestLargeFreeze)
	go test -tags large -timeout 30m -count=1 -v ./test/integration -run '$(or $(RUN),TestLarge)'

# Helm 3 renders the notes only with a cluster, so this target skips the test of the notes.
.PHONY: test-helm3
test-helm3: controlplane build ## Test the chart with the last release of Helm 3, in fifteen minutes
	@tools/build.sh helm3
	HELM=helm3 go test -timeout 30m -count=1 ./test/manifests -skip NotesNameTheNextCommand

# This check runs before anything is compiled.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || { echo 'chromium is missing, which only a package manager has: apt-get install chromium'; exit 1; }

.PHONY: test-browser
test-browser: browser controlplane build ## Open the pages of outrigger ui, and runs in Temporal's UI, in a browser (needs chromium)
	go test -tags browser -timeout 10m ./test/integration ./test/cli -run 'WebUI|InABrowser'

.PHONY: record-histories new-release
record-histories: new-release controlplane build ## Record runs of a release, for later ones to replay (RELEASE=v0.2.0)
	go test -tags record ./test/integration -count=1 -run '^TestRecord' -release '$(RELEASE)'
	go test ./workflows -run Recorded
	bin/kubectl kustomize config/default >test/manifests/testdata/releases/$(RELEASE).yaml

# This check runs before anything is compiled.
new-release:
	@[ ! -e 'workflows/testdata/histories/$(or $(RELEASE),$(error set RELEASE, for example: make record-histories RELEASE=v0.2.0))' ] || \
	{ echo 'record-histories: the histories of $(RELEASE) exist already, and must not change'; exit 1; }

# The tests with this build tag stop single processes of a Temporal cluster. The dev server is
# only one process.
.PHONY: test-cluster
test-cluster: controlplane build ## Run the integration tests and the bench on a Temporal cluster (RUN=TestTemporalCluster)
	@tools/build.sh $(temporalcluster) prometheus
	OUTRIGGER_TEMPORAL=cluster go test -timeout 40m -tags temporalcluster ./test/integration $(if $(RUN),-run '$(RUN)')
	OUTRIGGER_TEMPORAL=cluster go run ./dev/bench rollout --pods=200 --rounds=1

# This check runs before anything is compiled.
.PHONY: machine
machine: ## List the missing requirements of this machine for a real node
	@go build -o bin/node/check ./test/realnode/check && bin/node/check

# The programs are static, because the images contain no libraries.
.PHONY: e2e-node
e2e-node: machine controlplane build ## Test rollouts and the installation on a real node: containerd and a kubelet; needs root (RUN=TwentyPods measures)
	@tools/build.sh kubelet helm crane
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/node/ ./cmd/outrigger ./test/e2e/container ./test/realnode/node ./examples/hot-upgrade/sidecar ./examples/hot-upgrade/empty
	go test -tags e2e -timeout 40m -count=1 -v -p 1 ./test/e2e/... ./test/realnode/node $(if $(RUN),-run '$(RUN)' -bench '$(RUN)' -benchtime 1x)

.PHONY: node node-shell node-down
node: machine controlplane build ## Run Kubernetes, Temporal and Outrigger with a real node; needs root (node-shell enters, node-down ends)
	@tools/build.sh kubelet crane
	@CGO_ENABLED=0 go build -o bin/node/ ./test/e2e/container ./test/realnode/node
	@bin/node/node up

node-shell:
	@bin/node/node shell

node-down:
	@bin/node/node down

.PHONY: up
up: controlplane build bin/stack ## Start the local stack: Kubernetes, Temporal, Outrigger (WORKERS=2)
	@bin/stack up --detach --workers=$(WORKERS)

.PHONY: temporal-cluster
temporal-cluster: controlplane build bin/stack ## Start the local stack with Temporal's own server on PostgreSQL, not the dev server
	@tools/build.sh $(temporalcluster)
	@bin/stack up --detach --workers=$(WORKERS) --temporal=cluster

.PHONY: down
down: bin/stack ## Stop the local stack
	@bin/stack down

.PHONY: status
status: bin/stack ## List the processes of the local stack
	@bin/stack status

.PHONY: stop kill start
stop: ## Stop a process with SIGTERM: ROLE=operator, worker, worker-2, webhook, temporal, temporal-history-1, postgres, etcd, ...
kill: ## Kill a process with SIGKILL: ROLE=...
start: ## Start a process again: ROLE=...
stop kill start: bin/stack
	@bin/stack $@ $(or $(ROLE),$(error set ROLE, for example: make $@ ROLE=worker-1))

.PHONY: run
run: build bin/stack ## Run the roles here against the cluster of KUBECONFIG=... (TEMPORAL_ADDRESS, WEBHOOK_URL, WEBHOOK_FLAGS, ...)
	@tools/build.sh kubectl
	@bin/stack run --kubeconfig='$(KUBECONFIG)'

# make prints this text before the demo starts.
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
# This target runs in parallel with the downloads.
demo-outrigger:
	@dev/step.sh 'Outrigger is compiled' go build -o bin/ ./cmd/outrigger ./dev/stack

.PHONY: fleet-demo
fleet-demo: controlplane build bin/stack ## Show a rollout across three clusters, with a version that stops in the first one (DEMO_EXIT=1 ends it)
	@bin/stack fleet-demo

.PHONY: bench-rollout bench-idle-sets bench-create-sets bench-fleet bench-rest bench-events
bench-rollout: controlplane build ## Measure a rollout and a baseline (PODS=1000 WINDOW=10% HOT= IDEAL=true ROUNDS=3)
	@$(call bench,rollout --pods=$(PODS) --window=$(WINDOW) --ideal=$(IDEAL) --rounds=$(ROUNDS) $(if $(HOT),--hot))
bench-idle-sets: controlplane build ## Measure a rollout with 1,000 idle SidecarSets (PODS=1000 FLAGS='--idle-sets=20')
	@$(call bench,rollout --pods=$(PODS) --window=$(WINDOW) --rounds=1 --idle-sets=1000)
bench-create-sets: controlplane build ## Measure the creation of 500 SidecarSets (FLAGS='--sets=20')
	@$(call bench,fleet --pods=0 --sets=500 --workers=1)
bench-fleet: controlplane build ## Measure 50 SidecarSets that roll out together over 5,000 pods (FLAGS='--max-unavailable-pods=100')
	@$(call bench,fleet)
bench-rest: controlplane build ## Measure 500 SidecarSets with 10,000 pods at rest (FLAGS='--rest=1m')
	@$(call bench,fleet --pods=10000 --sets=500 --workers=1 --window=50% --rest=2m)
bench-events: controlplane build ## Measure 50 events of pods per second with 500 SidecarSets in namespaces of their own and 20,000 pods (FLAGS='--events=10')
	@$(call bench,fleet --pods=20000 --sets=500 --workers=1 --per-namespace --upgrade=false --rest=2m --events=50)

# This function builds the program first, because go run replaces the exit code of the program.
# $(call bench,subcommand and flags)
define bench
go build -o bin/bench ./dev/bench && bin/bench $(1) $(FLAGS)
endef

.PHONY: screenshot
screenshot: browser controlplane build ## Take the screenshots in docs/images (needs chromium)
	go test -tags browser ./test/integration ./test/cli -count=1 -run 'TestWebUI|InABrowser' -args -screenshots=$(CURDIR)/docs/images

.PHONY: chaos
chaos: controlplane build ## Disturb a whole installation and check the rules of docs/SPEC.md (SEED=1 FAULTS=100)
	go run ./dev/chaos --seed=$(SEED) --faults=$(FAULTS)

.PHONY: fleet-chaos
fleet-chaos: controlplane build ## Disturb a fleet of four clusters and check the order of its rollouts (SEED=1 ROUNDS=3)
	go run ./dev/chaos fleet --seed=$(SEED) --rounds=$(ROUNDS)

.PHONY: soak
soak: controlplane build ## Edit SidecarSets for a long time and check for growth (DURATION=30m)
	go run ./dev/chaos soak --seed=$(SEED) --duration=$(DURATION)

.PHONY: fuzz
fuzz: ## Fuzz injection and the pod webhook (FUZZTIME=5m each)
	go test ./internal/inject -run '^$$' -fuzz FuzzInjection -fuzztime $(FUZZTIME)
	go test ./internal/inject -run '^$$' -fuzz FuzzTwoSets -fuzztime $(FUZZTIME)
	go test ./webhook/pods -run '^$$' -fuzz FuzzPods -fuzztime $(FUZZTIME)
	go test ./webhook/pods -run '^$$' -fuzz FuzzReviews -fuzztime $(FUZZTIME)

# The programs are static, because images from scratch contain no libraries.
.PHONY: static
static:
	@CGO_ENABLED=0 go build -trimpath $(release) -o bin/static/ ./cmd/outrigger ./dev/compose/controlplane ./dev/compose/probe

# The Docker engine is checked before the programs are compiled.
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
compose-test: engine controlplane static ## Test everything in containers and remove it again
	@dev/compose/compose.sh test
