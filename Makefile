# The commands of everyday work. `make run` serves on embedded defaults; `make test` runs every test there is.

CARGO ?= cargo

.PHONY: run test soak damage check fuzz chaos bench setup

run: ## build and serve on embedded defaults: SQLite and a local folder below ./s3o-data
	$(CARGO) run --release --bin s3o -- serve

test: ## every test, with what it needs installed, started and stopped again
	scripts/test.sh

soak: export S3O_SOAK_SECONDS ?= 600
soak: ## simulate new seeds for S3O_SOAK_SECONDS (default 600); a seed that fails is told
	$(CARGO) test -p s3o-tests --test simulation -- --exact soak --nocapture

damage: ## damage copies of a catalog at random and serve them, S3O_DAMAGED_CATALOGS of them (default 500)
	S3O_DAMAGED_CATALOGS=$${S3O_DAMAGED_CATALOGS:-500} S3O_DAMAGE_SEED=$${S3O_DAMAGE_SEED:-$$(date +%s)} \
		S3O_SUITES=damage scripts/test.sh

check: ## all that a machine can judge without running the product
	scripts/check.sh

fuzz: ## new inputs for every fuzz target, S3O_FUZZ_SECONDS each; TARGET picks some of them by name
	S3O_FUZZ_SECONDS=$${S3O_FUZZ_SECONDS:-60} $(CARGO) test -p s3o-tests --test fuzz -- --nocapture $(TARGET)

chaos: ## instances, database and stores under random faults, for S3O_CHAOS_SECONDS
	S3O_CHAOS_SECONDS=$${S3O_CHAOS_SECONDS:-600} S3O_CHAOS_SEED=$${S3O_CHAOS_SEED:-$$(date +%s)} S3O_SUITES=chaos scripts/test.sh

bench: ## build for speed, start a private server, load it, print a table
	scripts/bench.sh

setup: ## install what the tests need
	scripts/setup.sh
