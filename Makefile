SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# What is linked without C is linked in two thirds of the time, and is what a release has.
export CGO_ENABLED := 0

# The tool is pinned here and run by version, so that it is no dependency of the module.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Packages where goroutines share memory, the longest first.
CONCURRENT := ./store/pebblestore ./internal/service/... ./service/... . ./internal/enginetest ./archive ./client ./commerce/... ./dispatch ./evidence ./door/... ./safehttp ./shield/... ./store/memstore 

# Stores on servers, whose suites take minutes under the race detector: without the suites.
SERVED := ./store/pgstore ./store/redisstore

# Modules of their own, which keep what they need out of the one in the root.
MODULES := bench/others bench/peers contrib/frameworks contrib/semelecho contrib/semelgin contrib/semelmcp

# Tests of which make test leaves out most, or all; see internal/rig/thorough.
LONG := ^Test(ContractThroughPooler|WhatWasAcknowledged.*|Storm|Plans)$$

# How long each side of a comparison takes its turn in make bench-peers, which has six rounds.
PEERS ?= 2s

# The stores on which make bench-against compares.
STORES ?= memory,pebble,postgres,redis

# How long make prove breaks things, in all, and what decides on how.
CHAOS ?= 90s
SEED ?= 1
STORE ?= postgres,redis,cluster,pebble

# Whether make prove plays a storm at every door, which takes a minute.
TOUR ?= 1

# Whether make prove judges all servers with planted bugs, and Semel's doors on all stores.
JUDGE ?= 1

# How make prove plays agents, which takes five minutes; with -agents.smoke half of one.
AGENTS ?=

# On how many inputs make prove and make fuzz try every fuzz target.
INPUTS ?= 10000

# Which earlier programs, and on which stores, make prove upgrades from.
UPGRADE ?= .

# Which clauses make prove plants the faults of; a tenth of them, another each day.
FAULTS ?= all

.PHONY: help test generate lint prove prove-others prove-install race fuzz bench bench-smoke bench-peers bench-against demo site pictures release ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## run all tests, and check docs/requirements.md, docs/documents and docs/guarantees.md against those that passed (TESTFLAGS=-v)
	@scripts/test -check

generate: ## run all tests, and write docs/requirements.md, docs/documents and docs/guarantees.md from those that passed
	@scripts/test

lint: ## gofmt, go vet, go fix, staticcheck, go mod tidy, promtool: all must find nothing to change
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not gofmt-clean:"; echo "$$files"; exit 1; fi
	go vet ./...
	go fix -diff ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff
	@scripts/install-services
	promtool check rules monitoring/prometheus/rules.yml
	promtool test rules monitoring/prometheus/rules_test.yml
	@for module in $(MODULES); do \
		echo "lint $$module"; \
		(cd $$module && export GOWORK=off && go vet ./... && go fix -diff ./... && go run $(STATICCHECK) ./... && go mod tidy -diff); \
	done

prove: ## run the long tests at their full length, then break everything around nodes (CHAOS=1h SEED=7 STORE=redis); see docs/chaos.md
	@scripts/install-services
	@scripts/services
	@scripts/install-services scripts/gateways.list
	@scripts/services scripts/gateways.list
	@scripts/install-sdks
	SEMEL_THOROUGH=1 go test -run '$(LONG)' -count=1 -timeout 20m ./store/pgstore ./store/pebblestore ./door/webhook
	SEMEL_THOROUGH=1 go test -run '^Test(SDKs|KilledProxies|GracefulRestartsOfTheUpstream|Gateways|WebhooksBehindAGateway)$$' -count=1 -v -parallel 4 -timeout 20m ./cmd/semel/internal/cli ./door/semelproxy
	SEMEL_THOROUGH=1 go test -run '^TestUpgrade$$/$(UPGRADE)' -count=1 -v -timeout 20m ./internal/rig/upgrade
	SEMEL_THOROUGH=1 go test -run '^Test(Fedify|JavaScriptSDK|LibrariesOfSenders)$$' -count=1 -v -timeout 10m ./door/activitypub/... ./door/a2a ./door/webhook
	SEMEL_THOROUGH=1 go test -count=1 -v -timeout 40m ./internal/rig/agents -agents.seed=$(SEED) $(AGENTS)
	$(if $(TOUR),SEMEL_THOROUGH=1 go test -run '^TestTour$$' -count=1 -v -timeout 10m ./cmd/semel/internal/demo)
	SEMEL_THOROUGH=1 go test -run '^Test(States|Pages)$$' -count=1 -timeout 20m ./service/dashboard
	$(if $(JUDGE),SEMEL_THOROUGH=1 go test -count=1 -timeout 20m -parallel 8 ./internal/check/...)
	$(if $(INPUTS),scripts/fuzz $(INPUTS))
	$(if $(FAULTS),scripts/mutate -clauses $(FAULTS) -tenth $$(date +%-j))
	go test -run '^TestChaos' -count=1 -v -timeout 5h ./internal/rig/chaos -chaos.duration=$(CHAOS) -chaos.seed=$(SEED) -chaos.store=$(STORE)

prove-others: ## judge other projects beside Semel, and find what docs/others.md says (UPDATE=1 writes it)
	@scripts/install-services
	@scripts/services
	@cd bench/others/npm && { cmp -s package-lock.json node_modules/.installed-lock || { npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && cp package-lock.json node_modules/.installed-lock; }; }
	cd bench/others && GOWORK=off go test -count=1 -timeout 1h -parallel 4 . -run '^TestOthers$$' $(if $(UPDATE),-update)

release: ## make what is published of a version into dist (RELEASE_KEY=file of an SSH key, ONLY=linux_amd64); see docs/install.md
	cd release && GOWORK=off go run . -out ../dist -key '$(abspath $(RELEASE_KEY))' -only '$(ONLY)'

prove-install: ## test what make release made, install it into empty roots, each in its way, and run the demo there
	@scripts/install-services
	cd release && export GOWORK=off && go vet . && go run $(STATICCHECK) . && go test -count=1 -timeout 30m .
	cd release && GOWORK=off go run . -out ../dist -prove -only '$(ONLY)'

race: ## run the tests of the concurrent packages under the race detector
	@scripts/install-services
	@scripts/services
	@scripts/install-sdks service/dashboard/testdata/npm
	CGO_ENABLED=1 go test -race -short -vet=off -count=1 -timeout 20m -p 3 -parallel 6 $(CONCURRENT)
	CGO_ENABLED=1 go test -race -short -vet=off -count=1 -timeout 20m -parallel 6 -skip '^Test(Contract|Faults$$|FaultsFailover|FaultsOfTheNetwork|Killed|Cluster|AFailover|ASlot|AMaster|AnIsolated|EnginesGoOn|NothingIsLost|Plans|FewConnections|ServersThatRefuse|RefusedStatements|ANodeWhose|Sentinels|APrivateAuthority|TheDocumentedRights|AMissingRight|AttributesOf)' $(SERVED)

fuzz: ## run every fuzz target (INPUTS=100000)
	@scripts/fuzz $(INPUTS)

bench: ## count what calls cost, and write bench/results.txt and docs/performance.md (CALLS=2000)
	@scripts/install-services
	@scripts/services
	@CALLS=$(CALLS) scripts/bench

bench-smoke: ## run every benchmark once, to see that it works
	@scripts/install-services
	@scripts/services
	go test -run '^$$' -bench . -benchtime 1x -vet=off $$(grep -rl --include='*_test.go' --exclude-dir=peers '^func Benchmark' . | xargs -n 1 dirname | sort -u)
	cd bench/peers && GOWORK=off go test -run '^$$' -bench . -benchtime 1x -vet=off .

bench-peers: ## measure beside other projects, see bench/peers/README.md (PEERS=10s)
	@scripts/install-services
	@scripts/services
	cd bench/peers && GOWORK=off go test -run '^$$' -bench . -benchtime 6x -timeout 1h . -turns.length $(PEERS)

bench-against: ## compare with another commit, see bench/peers/README.md (COMMIT=6d3edf5 STORES=redis DURATION=150ms ROUNDS=80)
	@scripts/install-services
	@scripts/services
	go test -count=1 -v -run TestAgainst -timeout 2h ./bench/against -against.commit=$(COMMIT) -against.duration=$(or $(DURATION),150ms) -against.rounds=$(or $(ROUNDS),40) -against.stores=$(STORES)

demo: ## run the demo (ARGS="--exit --json")
	go run ./cmd/semel demo $(ARGS)

site: ## write the documentation as a site of files into dist/site, and draw its pictures anew
	go run ./internal/rig/diagrams docs/images
	go run ./internal/rig/site internal/service/api/openapi.json dist/site

pictures: ## take the pictures of README.md from the demo's dashboard
	go test -count=1 -run '^TestDemo$$' ./service/dashboard -pictures

ci: ## run everything that must pass before a change is merged
	@.ci/run
