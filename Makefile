# Ringfence. `make` lists the targets; README.md says what they are for.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# One flag set for all targets, because every other set compiles the whole tree again; -race is the only second one.
# -buildvcs=false: a clone that belongs to another user must build. -trimpath: clones in different folders share the build cache.
export GOFLAGS := -buildvcs=false -trimpath

BIN      := $(CURDIR)/bin
TOOLS    := $(BIN)/tools
SERVICES := gateway calls contacts-compliance dialer billing-wallet webhook-dispatcher console
# The services with a database schema.
STORES   := $(filter-out console,$(SERVICES))
MODULES  := ./cmd/... ./deploy/... ./examples/... ./test/... ./tools/... $(patsubst %/go.mod,./%/...,$(wildcard docs/go.mod libs/go.mod proto/go.mod services/*/go.mod))
FUZZTIME ?= 10s
FUZZ     ?= Fuzz

# Flags of `make test`, for example TESTFLAGS='-count=1 -run TestFence'.
TESTFLAGS ?= -timeout 5m

# Programs of Kubernetes. The API server alone validates the manifests of the charts.
KUBERNETES := $(TOOLS)/kubernetes
API_SERVER := $(addprefix $(KUBERNETES)/,etcd kube-apiserver kubectl)
CLUSTER    := $(API_SERVER) $(addprefix $(KUBERNETES)/,kube-controller-manager kube-scheduler kubelet kube-proxy kube-router coredns)

# Programs in the stand-ins for images of other projects (test/containers/images.sh).
STANDINS := $(addprefix $(TOOLS)/standins/,minio mc otelcol jaeger)

# The number of packages that `make test` tests at a time. Many tests wait for the database or for an interval to pass.
PACKAGES ?= 4

# `make test` runs every package except those below. Their tests start built programs or a whole stack, render charts,
# or need programs of other projects.
IN_VERIFY  := deploy/compose deploy/grafana deploy/prometheus tools/reference
IN_E2E     := test/e2e test/e2e/console test/e2e/contract test/e2e/webhooks cmd/ringfence-local test/kit services/dialer/cmd/dialer
IN_NIGHTLY := test/containers test/chaos test/failover test/sip test/asterisk test/alerts test/apachekafka
UNIT        = $(filter-out $(addprefix ringfence.dev/,$(IN_VERIFY) $(IN_E2E) $(IN_NIGHTLY)),$(shell go list $(MODULES)))

# The commits since which `make lint` checks lines and commit subjects: the recorded ones, or the last commit where the
# history does not contain them.
LINT_BASE          = $(call recorded_commit,.lint-base)
LINT_BASE_SUBJECTS = $(call recorded_commit,.lint-base-subjects)
recorded_commit    = $(shell base=$$(cat $(1)); git merge-base --is-ancestor $$base HEAD 2>/dev/null && echo $$base || git rev-parse -q --verify HEAD~1 || git rev-parse HEAD)

# Tests in test/e2e that belong to `make test-nightly`.
NIGHTLY_TESTS := ^Test(Cancel_ResponseMatches|OptOut_|Pause_|Upgrade_|Pooler_|SIP_|Recording_)

# The size of `make test-nightly`: large, or short for the form that .ci/run has time for.
NIGHTLY ?= large
LARGE    = $(if $(filter large,$(NIGHTLY)),-large)

# The tests of the dialer with sipp, baresip and Asterisk, separated by |.
PEER_TESTS = $(shell grep -oh '^func Test[A-Za-z0-9_]*' services/dialer/cmd/dialer/*_peer_test.go | grep -v TestMain | cut -c6- | paste -sd '|' -)

# What test-kafka runs on Apache Kafka. whole: every package whose tests use libs/testkit/kafkatest, and the
# end-to-end tests, whose stacks start a broker each (half an hour or more). short: about two minutes, for .ci/run.
KAFKA ?= $(if $(filter short,$(NIGHTLY)),short,whole)
SPEAKERS  = $(if $(filter short,$(KAFKA)),./libs/kafka ./libs/inbox ./libs/outbox ./services/billing-wallet/internal/consumer ./services/gateway/cmd/gateway,\
  $(sort $(patsubst %/,./%,$(dir $(shell grep -rl --include=*_test.go ringfence.dev/libs/testkit/kafkatest libs services)))))
ONKAFKA   = $(if $(filter short,$(KAFKA)),-run "^(TestApacheKafka|TestFirstCall|TestRecords|TestCluster)" ./test/e2e,./test/e2e/... ./test/asterisk ./test/chaos ./test/failover ./test/sip) ./test/apachekafka
WITH_KAFKA = RINGFENCE_BIN=$(BIN) $(BIN)/ringfence-local with-postgres -- $(BIN)/ringfence-kafka with --
OFFKAFKA  = $(if $(filter short,$(KAFKA)),-skip "TestRelay_StoppedLeader")

# Tests that cannot run through a pooler: they open the pool's address a second time, stop a client that the pooler delays, wait until
# no session is left, or count the rows that one statement read.
PASTPOOLER := TestOpen_RefusesAnOutdatedSchemaAndNamesTheRemedy|TestOpen_RefusesASchema|TestOpen_EndsTransactionsOfHangingClients|TestOpen_EndsSessionsThatDoNotReadTheirResults|TestRelay_StoppedLeader|TestLedger_ConcurrentWorkNeverDeadlocks|TestClaim_CostDoesNotGrowWithScheduledRequests|TestConsumer_DatabaseOutageLosesNoRecord

# Tests of pooler that write or read many rows. NIGHTLY=short leaves them out: more rows do not need more sessions.
POOLER_MANY_ROWS := TestLedger_MatchesTheModelAfterRandomOperations|TestOrderErasure_ManyCallsAreErasedInSteps|TestOrderErasure_RunningJob|TestList_NoFilterReadsTheWholeWorkspace|TestClaim_Reads|TestClaim_ManyRequestsOfOne|TestClaim_ManyRequestsDue|TestDueAnalyses_CostDoesNotGrow|TestComplete_ReadsFewIndexEntries

# Progress of a long build: go build -v prints a line of one word for each compiled package.
PROGRESS := awk '/^exit [0-9]+$$/ {exit $$2} NF == 1 {if (++n % 100 == 0) {print "  " n " packages compiled"; fflush()} next} {print; fflush()}'

# Generates the files of proto/openapi into the folder $(1).
openapi = mkdir -p $(1) && go run ./tools/reference openapi proto/openapi/openapi.yaml > $(1)/openapi.json && \
  go run ./tools/reference openapi proto/openapi/operator.yaml > $(1)/operator.json && \
  go run ./tools/reference openapi proto/openapi/console.yaml > $(1)/console.json && \
  go run ./tools/reference openapi-types proto/openapi/openapi.yaml > $(1)/generator.tmp && \
  $(TOOLS)/oapi-codegen -config proto/openapi/types.cfg.yaml -o $(1)/types.gen.go $(1)/generator.tmp && \
  $(TOOLS)/oapi-codegen -config proto/openapi/client.cfg.yaml -o $(1)/client.gen.go $(1)/generator.tmp && rm $(1)/generator.tmp

.PHONY: help configuration alerts run test test-race test-e2e test-console test-nightly nightly-clients nightly-sip nightly-races nightly-chaos nightly-failover nightly-upgrade clients observe pooler \
  kafka-inbox kafka-speakers kafka-stacks test-containers test-cluster sandbox engine fuzz docs diagrams demo listen bench chaos upgrade lint charts goldens verify proto proto-current \
  breaking tidy-current fmt clean build sbom reproducible go cc npm examples sound pgbouncer chromium peers asterisk java kafka kafka-fetch test-kafka

# Lists the targets with a description.
help:
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Run

run: build ## run the whole service on this machine until Ctrl-C
	@exec $(BIN)/ringfence-local up

demo: build ## place a call on the running stack and print each step
	@exec $(BIN)/ringfence demo $(ARGS)

listen: build ## receive and verify the webhooks of the demo workspace
	@exec $(BIN)/ringfence listen $(ARGS)

##@ Test

test: $(BIN)/ringfence-local sound pgbouncer ## run the unit and store tests on a real Postgres (TESTFLAGS adds flags)
	@$(BIN)/ringfence-local with-postgres -- go test -p $(PACKAGES) $(TESTFLAGS) $(UNIT)

test-race: cc ## run the same tests with the race detector
	@$(MAKE) --no-print-directory test TESTFLAGS='-race -timeout 20m $(if $(filter command line,$(origin TESTFLAGS)),$(TESTFLAGS))'

test-e2e: build examples chromium ## run contract, crash and replica tests against the built programs
	@failed=; RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 20m -skip '$(NIGHTLY_TESTS)' ./test/e2e || failed=1; \
	 RINGFENCE_BIN=$(BIN) $(BIN)/ringfence-local with-postgres -- go test -count=1 -p 1 -timeout 20m -skip '^TestClients_' $(addprefix ./,$(filter-out test/e2e,$(IN_E2E))) && test -z "$$failed"

# Drives the pages of the console in headless Chromium. It is a part of test-e2e.
test-console: build chromium
	@RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 20m $(filter-out -timeout 5m,$(TESTFLAGS)) ./test/e2e/console

test-nightly: build nightly-clients nightly-sip nightly-races nightly-chaos nightly-failover nightly-upgrade pooler test-kafka observe $(if $(filter large,$(NIGHTLY)),reproducible test-containers) ## run the long tests: SIP peers, races, chaos, failover, Kafka, alerts (NIGHTLY=short)

nightly-sip: build peers asterisk
	@$(BIN)/ringfence-local with-postgres -- go test -count=1 -tags peers -timeout 20m ./services/dialer/internal/sip/...
	@RINGFENCE_ASTERISK=$(BIN)/asterisk $(BIN)/ringfence-local with-postgres -- go test -count=1 -tags peers -timeout 20m -run '^($(PEER_TESTS))$$' ./services/dialer/cmd/dialer
	@RINGFENCE_BIN=$(BIN) go test -count=1 -p 1 -timeout 60m -run '^Test(SIP|Recording)_' ./test/e2e
	@RINGFENCE_BIN=$(BIN) RINGFENCE_ASTERISK=$(BIN)/asterisk go test -count=1 -tags peers -p 1 -timeout 60m ./test/sip ./test/asterisk $(LARGE)

# Generates clients from the OpenAPI document, places a call with each, and runs the recipes of docs/webhooks.md.
nightly-clients: build clients
	@RINGFENCE_BIN=$(BIN) $(BIN)/ringfence-local with-postgres -- go test -count=1 -v -timeout 20m -run '^TestClients_' ./test/e2e/contract

nightly-failover: build
	@RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 120m ./test/failover $(LARGE)

nightly-races: build
	@RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 180m -run '^Test(Cancel_ResponseMatches|OptOut_|Pause_$(if $(LARGE),|Kills_|Hangs_|Replicas_|Wallet_))' ./test/e2e $(LARGE)
	@test -z "$(LARGE)" || RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 60m -run '^TestFailpoints_' ./test/e2e $(LARGE)
	@test -z "$(LARGE)" || RINGFENCE_BIN=$(BIN) $(BIN)/ringfence-local with-postgres -- go test -count=1 -timeout 60m -run '^TestSettings_' ./test/e2e/contract $(LARGE)
	@test -z "$(LARGE)" || RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 60m -run '^TestPause_' ./test/e2e/webhooks $(LARGE)
	@test -z "$(LARGE)" || go test -count=1 -timeout 120m -run '^TestEvaluate_MatchesAMinuteByMinuteSearch' ./services/contacts-compliance/internal/gate $(LARGE)
	@test -z "$(LARGE)" || $(BIN)/ringfence-local with-postgres -- go test -count=1 -timeout 60m -run '^Test(OrderErasure_RunningJob|SubscriptionStatus_ChangesDoNotRead)' ./services/dialer/internal/store ./services/webhook-dispatcher/internal/store $(LARGE)

nightly-chaos: build peers
	@RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 60m ./test/chaos $(LARGE)

nightly-upgrade: build
	@RINGFENCE_BIN=$(BIN) go test -count=1 -timeout 30m -run '^TestUpgrade_' ./test/e2e $(LARGE)

# SANDBOX runs tests of test/containers on Docker Engine, in namespaces that end with it (test/containers/README.md).
SANDBOX = cd test/containers && GOROOT="$$(go env GOROOT)" MODULES="$$(go env GOMODCACHE)" RINGFENCE_BIN=$(BIN) ./sandbox.sh $(BIN)/containers $(BIN)/containers/test

sandbox: build engine kafka-fetch $(TOOLS)/docker-compose $(TOOLS)/cyclonedx-gomod
	@test/containers/images.sh fetch $(BIN)/containers
	@go test -c -o $(BIN)/containers/test ./test/containers

test-containers: sandbox $(STANDINS) ## build the images and run docker-compose.yml on Docker Engine (as root on Debian)
	@cd test/containers && RINGFENCE_BIN=$(BIN) $(BIN)/containers/test -test.v -test.run '^TestSandbox_'
	@$(SANDBOX) -test.v -test.timeout 60m -test.run '^Test(Images|Compose)_'

test-cluster: sandbox $(CLUSTER) $(TOOLS)/helm ## install the charts in a Kubernetes cluster and upgrade them under load (as root on Debian)
	@cd test/containers && RINGFENCE_BIN=$(BIN) $(BIN)/containers/test -test.v -test.run '^TestSandboxCluster_'
	@$(SANDBOX) -test.v -test.timeout 60m -test.run '^TestCluster_'

# Tests of stores, outbox, inbox and event streams through PgBouncer in transaction mode, with three server connections a test.
pooler: build peers
	@RINGFENCE_TEST_POOLER=transaction $(BIN)/ringfence-local with-postgres -- go test -p 2 -count=1 -skip '$(PASTPOOLER)$(if $(LARGE),,|$(POOLER_MANY_ROWS))' \
	   ./libs/pg/... ./libs/outbox/... ./libs/inbox/... $(foreach s,$(STORES),./services/$(s)/internal/store/...) \
	   ./services/webhook-dispatcher/internal/eventstream

# Runs the stack with a real Prometheus: every panel has data, and faults fire and resolve their alerts.
observe: build peers
	@RINGFENCE_BIN=$(BIN) RINGFENCE_OBSERVE="$${RINGFENCE_OBSERVE:-$(if $(filter short,$(NIGHTLY)),,whole)}" go test -count=1 -v -timeout 60m -run TestObserving ./test/alerts/

# Tests of everything that uses Kafka, on Apache Kafka. They wait most of the time, so the parts run side by side; each has a broker.
test-kafka: build examples peers kafka-fetch
	@$(MAKE) --no-print-directory -j 3 -k -O kafka-inbox kafka-speakers kafka-stacks

kafka-inbox:
	@$(WITH_KAFKA) go test -timeout 40m -count=1 ./libs/inbox
kafka-speakers:
	@$(WITH_KAFKA) go test -p 2 -timeout 40m -count=1 $(OFFKAFKA) $(filter-out ./libs/inbox,$(SPEAKERS))
kafka-stacks:
	@$(WITH_KAFKA) go test -p 2 -timeout 40m -count=1 $(ONKAFKA)

# Rolls every service from the binaries of an older commit to these and back, under load: make upgrade FROM=<commit>.
upgrade: build
	@test -n "$(FROM)" || { echo "FROM names no commit: make upgrade FROM=<commit>"; exit 1; }
	@for s in $(STORES); do git cat-file -e "$(FROM):services/$$s/internal/store/migrations/0001_init.sql" 2>/dev/null || { \
	   echo "$(FROM) is a version before the first release (or no commit): this version cannot read its databases, so there is no upgrade from it"; exit 1; }; done
	@old=$$(mktemp -d) && trap 'git worktree remove --force "$$old/tree"; rm -rf "$$old"' EXIT && git worktree add -q --detach "$$old/tree" $(FROM) && \
	 echo "building the services of $(FROM)" && (cd "$$old/tree" && go build -o "$$old/bin/" $(foreach s,$(STORES),./services/$(s)/cmd/$(s))) && \
	 RINGFENCE_BIN=$(BIN) RINGFENCE_OLD_BIN="$$old/bin" go test -count=1 -v -timeout 30m -run '^TestUpgrade_' ./test/e2e $(LARGE)

# Builds the program of every image twice, in two folders with empty caches, and compares (ten minutes).
reproducible: go
	@go test -count=1 -timeout 40m -run TestImage -v ./deploy/compose

bench: build ## measure throughput and latency as ratios to this machine's limits (ARGS='-only reads')
	@$(MAKE) --no-print-directory kafka-fetch || true
	@go test -c -o $(BIN)/ringfence-claims ./services/dialer/internal/store
	@go test -c -o $(BIN)/ringfence-media ./services/dialer/internal/media
	@go test -c -o $(BIN)/ringfence-conversations ./services/dialer/internal/conversation
	@RINGFENCE_BIN=$(BIN) $(BIN)/ringfence-bench $(ARGS)

chaos: build ## kill and cut processes at random under load, then check every guarantee (CHAOS_MINUTES)
	@go build -o $(BIN)/ringfence-chaos ./test/chaos && RINGFENCE_BIN=$(BIN) exec $(BIN)/ringfence-chaos $(ARGS)

# Runs each fuzz target for FUZZTIME until the first failure: make fuzz FUZZTIME=10s FUZZ=FuzzName.
fuzz: build
	@$(BIN)/ringfence-local with-postgres -- sh -ec '\
	 grep -rEo --include=*_test.go "^func $(FUZZ)[A-Za-z0-9_]*" cmd deploy examples libs services test tools | sed "s|/[^/]*:func | |" | while read -r package target; do \
	   echo "$$target ./$$package"; go test -run "^$$" -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$package" </dev/null; \
	 done'

##@ Check

lint: $(TOOLS)/golangci-lint $(TOOLS)/spectral/node_modules ## check formatting, linters, API description, package layout and wording
	@$(TOOLS)/spectral/node_modules/.bin/spectral lint --quiet --fail-severity=warn -r tools/spectral/ruleset.yaml proto/openapi/openapi.json proto/openapi/operator.json proto/openapi/console.json
	@unformatted=$$(find cmd deploy docs examples libs proto services test tools -name '*.go' ! -name '*.pb.go' ! -name '*.connect.go' | xargs gofmt -l); \
	 test -z "$$unformatted" || { echo "not gofmt-ed (run make fmt):"; echo "$$unformatted"; exit 1; }
	@GOMEMLIMIT=2GiB $(TOOLS)/golangci-lint run $(MODULES)
	@GOMEMLIMIT=2GiB $(TOOLS)/golangci-lint run --config .golangci-changed.yml --new-from-rev=$(LINT_BASE) $(MODULES)
	@go run ./tools/wordlist -subjects-base $(LINT_BASE_SUBJECTS)
	@go test ./tools/sourcecheck

verify: build peers proto-current breaking tidy-current charts ## check generated code, compatibility of events and APIs, charts, dashboards and alerts
	@RINGFENCE_BIN=$(BIN) go test $(addprefix ./,$(filter-out deploy/compose,$(IN_VERIFY)))
	@echo "generated files are current; no event or described API changed incompatibly"

proto-current: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-connect-go $(TOOLS)/oapi-codegen
	@cd proto && PATH="$(TOOLS):$$PATH" buf lint
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && cd proto && PATH="$(TOOLS):$$PATH" buf generate -o "$$fresh" && \
	 for dir in billingv1 compliancev1 dialerv1 eventv1 settingsv1; do \
	   diff -r $$dir "$$fresh/$$dir" >/dev/null || { echo "proto/$$dir is not what its .proto files give: run make proto and commit"; exit 1; }; \
	 done
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call openapi,$$fresh) && for file in openapi.json operator.json console.json types.gen.go client.gen.go; do \
	   diff proto/openapi/$$file "$$fresh/$$file" >/dev/null || { echo "proto/openapi/$$file is not what openapi.yaml gives: run make proto and commit"; exit 1; }; \
	 done

# Compares events, internal APIs and the APIs described in proto/openapi with the released ones (proto/base.binpb, base*.json).
breaking: $(TOOLS)/buf $(TOOLS)/oasdiff
	@cd proto && $(TOOLS)/buf breaking --against base.binpb || { echo "an event or internal API changed incompatibly with the released one"; exit 1; }
	@for pair in base.json:openapi.json base-operator.json:operator.json base-console.json:console.json; do \
	   $(TOOLS)/oasdiff breaking --fail-on WARN "proto/openapi/$${pair%:*}" "proto/openapi/$${pair#*:}" || { \
	     echo "proto/openapi/$${pair#*:} changed in a way that breaks its clients"; exit 1; }; \
	 done

tidy-current: go
	@for module in . $(patsubst %/go.mod,%,$(wildcard docs/go.mod libs/go.mod proto/go.mod services/*/go.mod)); do \
	   (cd $$module && GOWORK=off go mod tidy -diff >/dev/null 2>&1) || { echo "$$module/go.mod is not tidy: run go mod tidy there and commit"; exit 1; }; \
	 done

# Renders every chart and checks it with a Kubernetes API server (without nodes), kube-score and the golden files. Checks the Compose
# file and the images' programs.
charts: build $(TOOLS)/helm $(TOOLS)/kube-score $(API_SERVER) $(TOOLS)/docker-compose
	@RINGFENCE_BIN=$(BIN) RINGFENCE_HELM=$(TOOLS)/helm RINGFENCE_KUBESCORE=$(TOOLS)/kube-score RINGFENCE_KUBERNETES=$(KUBERNETES) RINGFENCE_COMPOSE=$(TOOLS)/docker-compose go test -count=1 $(if $(RUN),-run '$(RUN)') -skip '^TestImage_BuildsAreIdenticalInTwoFolders$$' ./deploy/compose

fmt: go ## format the Go code
	@find cmd deploy docs examples libs proto services test tools -name '*.go' ! -name '*.pb.go' ! -name '*.connect.go' | xargs gofmt -w

##@ Build

build: go ## build the programs into bin/
	@mkdir -p $(BIN)
	@test -x $(BIN)/ringfence-local || echo "building for the first time: this takes one to three minutes"
	@{ go build -v -o $(BIN)/ $(foreach s,$(SERVICES),./services/$(s)/cmd/$(s)) ./cmd/simcarrier ./cmd/ringfence ./services/dialer/cmd/fake-speech-model && \
	   go build -v -o $(BIN)/ringfence-local ./cmd/ringfence-local && \
	   go build -v -o $(BIN)/ringfence-bench ./test/bench; echo "exit $$?"; } 2>&1 | $(PROGRESS)

proto: $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-connect-go $(TOOLS)/oapi-codegen ## generate Go code from the .proto files and the API description
	@cd proto && PATH="$(TOOLS):$$PATH" buf lint && PATH="$(TOOLS):$$PATH" buf generate
	@$(call openapi,proto/openapi)

docs: go ## build the documentation as a static site into bin/docs
	@go run ./tools/reference docs $(BIN)/docs

# Writes docs/reference/configuration.md from the variables of the services, and errors.md from the error catalogue.
configuration: build
	@go run ./tools/reference errors > docs/reference/errors.md.new && mv docs/reference/errors.md.new docs/reference/errors.md
	@go run ./tools/reference configuration $(BIN) > docs/reference/configuration.md.new && mv docs/reference/configuration.md.new docs/reference/configuration.md

# Writes docs/reference/alerts.md from the alert rules.
alerts: go
	@go run ./tools/reference alerts deploy/prometheus/rules > docs/reference/alerts.md.new && mv docs/reference/alerts.md.new docs/reference/alerts.md

# Draws docs/images/*.svg from the .d2 sources.
diagrams: $(TOOLS)/d2
	@for source in docs/images/*.d2; do $(TOOLS)/d2 --layout dagre --pad 10 "$$source" "$${source%.d2}.svg" || exit 1; done; chmod 644 docs/images/*.svg

# Writes the schemas and golden files of the charts. Review the difference and commit it.
goldens:
	@RINGFENCE_UPDATE=1 $(MAKE) --no-print-directory charts RUN=TestCharts_Schemas && RINGFENCE_UPDATE=1 $(MAKE) --no-print-directory charts RUN=TestCharts_MatchTheGoldenFiles
	@git --no-pager diff --stat -- helm deploy/compose/testdata

# Writes the bill of materials of each program (CycloneDX) into bin/sbom/.
sbom: build $(TOOLS)/cyclonedx-gomod
	@mkdir -p $(BIN)/sbom && for program in $(SERVICES) simcarrier; do \
	   $(TOOLS)/cyclonedx-gomod bin -json -std -short-purls -noserial -notimestamp -output $(BIN)/sbom/$$program.cdx.json $(BIN)/$$program 2>/dev/null || exit 1; \
	 done; ls $(BIN)/sbom

# Runs Apache Kafka until Ctrl-C. It prints its address, for KAFKA_BROKERS.
kafka: kafka-fetch
	@exec $(BIN)/ringfence-kafka up

clean: ## delete bin/ (never .ringfence, the data of the local stack)
	@rm -rf $(BIN)

$(BIN)/ringfence-local: go
	@go build -o $@ ./cmd/ringfence-local

# Tools are pinned, each in its own module, and built by the same Go.
$(TOOLS)/golangci-lint: tools/golangci/go.mod | go
	@echo "building golangci-lint (once; two minutes)"; cd tools/golangci && GOWORK=off go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(TOOLS)/buf: tools/buf/go.mod | go
	@echo "building buf (once; two minutes)"; cd tools/buf && GOWORK=off go build -o $@ github.com/bufbuild/buf/cmd/buf

$(TOOLS)/protoc-gen-go: tools/proto/go.mod | go
	@cd tools/proto && GOWORK=off go build -o $@ google.golang.org/protobuf/cmd/protoc-gen-go

$(TOOLS)/protoc-gen-connect-go: tools/proto/go.mod | go
	@cd tools/proto && GOWORK=off go build -o $@ connectrpc.com/connect/cmd/protoc-gen-connect-go

$(TOOLS)/oapi-codegen: tools/openapi/go.mod | go
	@cd tools/openapi && GOWORK=off go build -o $@ github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen

$(TOOLS)/d2: tools/d2/go.mod | go
	@echo "building d2 (once; two minutes)"; cd tools/d2 && GOWORK=off go build -o $@ oss.terrastruct.com/d2

$(TOOLS)/oasdiff: tools/oasdiff/go.mod | go
	@cd tools/oasdiff && GOWORK=off go build -o $@ github.com/oasdiff/oasdiff

$(TOOLS)/cyclonedx-gomod: tools/cyclonedx/go.mod | go
	@cd tools/cyclonedx && GOWORK=off go build -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

$(TOOLS)/spectral/node_modules: tools/spectral/package-lock.json | npm
	@mkdir -p $(@D) && cp tools/spectral/package.json tools/spectral/package-lock.json tools/spectral/.npmrc $(@D)/ && \
	 cd $(@D) && npm ci --no-progress --silent && touch node_modules

$(TOOLS)/typescript/node_modules: tools/typescript/package-lock.json | npm
	@mkdir -p $(@D) && cp tools/typescript/package.json tools/typescript/package-lock.json tools/typescript/.npmrc $(@D)/ && \
	 cd $(@D) && npm ci --no-progress --silent && touch node_modules

$(TOOLS)/clients/typescript/node_modules: test/clients/typescript/package-lock.json | npm
	@mkdir -p $(@D) && cp test/clients/typescript/package.json test/clients/typescript/package-lock.json test/clients/typescript/.npmrc $(@D)/ && \
	 cd $(@D) && npm ci --no-progress --silent && touch node_modules

$(TOOLS)/clients/python/bin/openapi-python-client: test/clients/python/requirements.txt
	@python3 -m venv $(TOOLS)/clients/python && $(TOOLS)/clients/python/bin/pip install -q --require-hashes -r $< && touch $@

# Generators of clients in TypeScript and Python. Without Node.js or Python the tests are skipped, and with CI=true they fail.
clients:
	@$(call installed,node npm python3,nodejs npm python3 python3-venv)
	@python3 -c 'import ensurepip' 2>/dev/null || { test "$$(id -u)" = 0 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv >/dev/null; } || true
	@$(MAKE) --no-print-directory $(TOOLS)/clients/typescript/node_modules || [ "$$CI" != true ]
	@$(MAKE) --no-print-directory $(TOOLS)/clients/python/bin/openapi-python-client || [ "$$CI" != true ]

# Node.js and Python for the tests of the example receivers. Without them the tests are skipped, and with CI=true they fail.
examples:
	@if command -v npm >/dev/null || [ "$$CI" = true ]; then \
	   $(MAKE) --no-print-directory $(TOOLS)/typescript/node_modules || [ "$$CI" != true ]; \
	 fi
	@test -d $(TOOLS)/typescript/node_modules || echo "SKIPPED: the webhook receiver in TypeScript (examples/receivers) needs Node.js 20 and npm"
	@command -v python3 >/dev/null || if [ "$$CI" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing Python, which a webhook receiver is tested with"; apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3 >/dev/null; \
	 else \
	   echo "SKIPPED: the webhook receiver in Python (examples/receivers) needs python3"; \
	 fi

# Programs that tests run: $(call installed,programs,Debian packages). As root with apt-get, missing programs are installed. Otherwise
# their tests are skipped with a message, and fail with CI=true.
installed = for program in $(1); do command -v $$program >/dev/null || missing="$$missing $$program"; done; test -z "$$missing" || \
 if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
   echo "installing$$missing"; { apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $(2) >/dev/null; } || [ "$$CI" != true ]; \
 else \
   echo "SKIPPED: tests with$$missing need apt-get install $(2)"; \
 fi

sound:
	@$(call installed,espeak-ng sox,espeak-ng sox)

chromium:
	@$(call installed,chromium,chromium)

pgbouncer:
	@$(call installed,pgbouncer,pgbouncer)

peers:
	@$(call installed,sipp baresip kamailio espeak-ng sox pgbouncer prometheus promtool amtool curl jq openssl psql,sip-tester baresip-core kamailio espeak-ng sox pgbouncer prometheus prometheus-alertmanager curl jq openssl postgresql-client)

# Docker Engine. The sandbox starts its own: policy-rc.d prevents that the package starts another one.
engine:
	@[ "$$(id -u)" = 0 ] || { echo "containers need root: run this target as root"; exit 1; }
	@export PATH="$$PATH:/usr/sbin:/sbin"; policy=/usr/sbin/policy-rc.d; \
	 command -v dockerd >/dev/null || [ -e $$policy ] || { trap "rm -f $$policy" EXIT; trap 'exit 130' INT TERM; printf '#!/bin/sh\nexit 101\n' > $$policy; chmod 755 $$policy; }; \
	 $(call installed,dockerd containerd /usr/lib/cni/bridge iptables ip conntrack ipset mmdebstrap jq curl psql openssl sipp,docker.io containernetworking-plugins iptables iproute2 conntrack ipset mmdebstrap jq curl postgresql-client openssl sip-tester)

asterisk:
	@tools/asterisk/install.sh $(BIN)/asterisk

# Apache Kafka, downloaded once with Maven.
kafka-fetch: go java
	@mkdir -p $(BIN) && go build -o $(BIN)/ringfence-kafka ./test/apachekafka && $(BIN)/ringfence-kafka fetch

java:
	@{ command -v java && command -v mvn; } >/dev/null || { \
	 if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing Java and Maven, which Apache Kafka runs on and is fetched with"; apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends default-jre-headless maven >/dev/null; \
	 else \
	   echo "no Java or no Maven, which Apache Kafka needs: install Java 17 or newer and Maven (apt-get install default-jre-headless maven, brew install openjdk maven)"; exit 1; \
	 fi; }

$(TOOLS)/helm: tools/helm/go.mod | go
	@echo "building helm (once; two minutes)"; cd tools/helm && GOWORK=off go build -o $@ helm.sh/helm/v3/cmd/helm

$(TOOLS)/kube-score: tools/kubescore/go.mod | go
	@echo "building kube-score (once; a minute)"; cd tools/kubescore && GOWORK=off go build -o $@ github.com/zegl/kube-score/cmd/kube-score

# The module proxy does not serve releases of MinIO. These versions are newer than the image that docker-compose.yml pins.
$(TOOLS)/standins/minio: | go
	@echo "building MinIO (once; two minutes)"; cd / && GOBIN=$(@D) CGO_ENABLED=0 go install -ldflags '-s -w' github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c

$(TOOLS)/standins/mc: | go
	@echo "building MinIO's client (once; a minute)"; cd / && GOBIN=$(@D) CGO_ENABLED=0 go install -ldflags '-s -w' github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9

$(TOOLS)/standins/jaeger: tools/jaeger/go.mod | go
	@echo "building Jaeger (once; three minutes)"; cd tools/jaeger && GOWORK=off CGO_ENABLED=0 go build -ldflags '-s -w' -o $@ github.com/jaegertracing/jaeger/cmd/jaeger

$(TOOLS)/standins/otelcol: tools/collector/builder.yaml | go
	@echo "building the OpenTelemetry Collector (once; a minute)"; sources=$$(mktemp -d) && trap 'rm -rf "$$sources"' EXIT && \
	 sed "s#^dist: {#dist: {output_path: $$sources, #" $< > "$$sources/builder.yaml" && cd / && GOWORK=off CGO_ENABLED=0 go run go.opentelemetry.io/collector/cmd/builder@v0.161.0 \
	   --config "$$sources/builder.yaml" > "$$sources/log" 2>&1 || { cat "$$sources/log"; exit 1; }; mkdir -p $(@D) && cp "$$sources/otelcol" $@

$(KUBERNETES)/coredns: | go
	@echo "building CoreDNS (once; three minutes)"; cd / && GOBIN=$(@D) CGO_ENABLED=0 go install -ldflags '-s -w' github.com/coredns/coredns@v1.14.2

$(KUBERNETES)/etcd: tools/kubernetes/go.mod | go
	@echo "building etcd (once; a minute)"; cd tools/kubernetes && GOWORK=off CGO_ENABLED=0 go build -ldflags '-s -w' -o $@ go.etcd.io/etcd/server/v3

# The newest version that the module proxy serves. It enforces network policies.
$(KUBERNETES)/kube-router: tools/kuberouter/go.mod | go
	@echo "building kube-router (once; two minutes)"; cd tools/kuberouter && GOWORK=off CGO_ENABLED=0 go build -ldflags '-s -w' -o $@ github.com/cloudnativelabs/kube-router/v2/cmd/kube-router

# The version stamp is the one that kubectl version and the nodes show.
$(KUBERNETES)/%: tools/kubernetes/go.mod | go
	@echo "building $(@F) (once; up to five minutes)"; cd tools/kubernetes && version=$$(GOWORK=off go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
	 minor=$${version#v1.} && for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do \
	   stamp="$$stamp -X $$package.gitVersion=$$version -X $$package.gitMajor=1 -X $$package.gitMinor=$${minor%%.*}"; done && \
	 GOWORK=off CGO_ENABLED=0 go build -ldflags "-s -w $$stamp" -o $@ k8s.io/kubernetes/cmd/$(@F)

$(TOOLS)/docker-compose: tools/compose/go.mod | go
	@echo "building Docker Compose (once; a minute)"; cd tools/compose && GOWORK=off CGO_ENABLED=0 go build -ldflags '-s -w' -o $@ github.com/docker/compose/v2/cmd

# What must be on the machine, each with its remedy.
go:
	@command -v go >/dev/null || { echo "Go is not installed: install Go 1.26 or newer (brew install go, or your system's package)"; exit 1; }
	@command -v git >/dev/null || { echo "git is not installed: install it with your package manager (apt-get install git, brew install git)"; exit 1; }

npm:
	@command -v npm >/dev/null || { \
	 if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing Node.js and npm, which lint the API description and check the receiver in TypeScript"; apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q nodejs npm >/dev/null; \
	 else \
	   echo "no npm, which make lint needs for the API description: install Node.js (apt-get install nodejs npm, brew install node)"; exit 1; \
	 fi; }

cc:
	@command -v "$${CC:-gcc}" >/dev/null || command -v cc >/dev/null || { \
	 if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing gcc, which the race detector needs"; apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q gcc libc6-dev >/dev/null; \
	 else \
	   echo "no C compiler, which the race detector needs: install gcc (apt-get install gcc libc6-dev; xcode-select --install), or run make test TESTFLAGS='-p 2'"; exit 1; \
	 fi; }
