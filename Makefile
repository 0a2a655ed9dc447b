# The two commands, and what CI checks besides. All logic is in xtask (Rust) and xtask/install-tools.sh.

CARGO ?= cargo

.PHONY: help demo clean-demo web test measure bench compare fuzz soak images sbom check fmt rooms words threats generated deny clippy dashboard tools

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: tools ## Two clusters, the hub, two agents and a Git repository; then a commit arrives (CONTEXTS="a b": in your own clusters)
	$(CARGO) xtask demo $(if $(CONTEXTS),--contexts "$(CONTEXTS)")

clean-demo: ## End everything that the demo started, and remove it
	$(CARGO) xtask clean-demo

web: tools ## Build the dashboard, which is part of the hub (demo, test and bench do so themselves)
	$(CARGO) xtask web

test: tools ## Set up what tests need, run every test, and take it down (ARGS='-- -p NAME -- FILTER': some; REPEAT=10: so often)
	$(CARGO) xtask test $(if $(REPEAT),--repeat $(REPEAT)) $(ARGS)

measure: tools ## Build for release and measure: push to applied beside a bare loop, and memory
	$(CARGO) xtask measure

bench: tools ## Build for release and measure the API beside kube-apiserver: rates, latencies, memory
	$(CARGO) xtask bench

compare: ## Build random inputs with our engine and with the real kustomize, and show what differs (INPUTS=20000)
	crates/kustomize/compare/run.sh $(or $(INPUTS),20000)

soak: tools ## Attacks by anonymous clients and hostile repositories at once on a hub with the memory that deploy/hub gives it, for ten minutes
	ROADSTEAD_SOAK_SECONDS=600 $(CARGO) xtask test --no-go -- --test soak -- --nocapture

fuzz: tools ## Fuzz every decoder for ten minutes each, with bounds on memory and time (ARGS='--seconds 60 --only yaml': less)
	$(CARGO) xtask fuzz $(ARGS)

sbom: tools ## Write a bill of materials of each program into target/sbom (CycloneDX)
	$(CARGO) xtask sbom

images: tools ## Build the images' static programs, and run them in roots that hold nothing else (as root)
	$(CARGO) xtask images

check: fmt rooms words threats generated deny dashboard clippy ## All that CI wants besides tests (make -k check: go on after a failure)

fmt rooms words threats generated deny dashboard clippy: tools

fmt:
	$(CARGO) fmt --all -- --check
rooms:
	$(CARGO) xtask rooms
words:
	$(CARGO) xtask words
threats:
	$(CARGO) xtask threats
generated:
	$(CARGO) xtask generate --check
deny:
	$(CARGO) xtask deny
dashboard:
	$(CARGO) xtask web --check
clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

tools: ## Install what is missing (as root on Debian and its like), or say what is
	@$(if $(CONTEXTS),ROADSTEAD_WITHOUT_GO=1 )sh xtask/install-tools.sh
