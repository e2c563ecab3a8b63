# Common commands. `make run` serves with embedded defaults; `make test` runs every test.

CARGO ?= cargo

.PHONY: run test soak damage check fuzz chaos drills bench setup

run: ## build and serve with embedded defaults: SQLite and a local folder below ./s3o-data
	$(CARGO) run --release --package s3o -- serve

test: ## run every test; installs, starts and stops what the tests need
	scripts/test.sh

soak: export S3O_SOAK_SECONDS ?= 600
soak: ## simulate new seeds for S3O_SOAK_SECONDS (default 600); prints seeds that fail
	$(CARGO) test -p s3o-tests --test simulation -- --exact soak --nocapture

damage: ## damage copies of a catalog at random and serve them, S3O_DAMAGED_CATALOGS of them (default 500)
	S3O_DAMAGED_CATALOGS=$${S3O_DAMAGED_CATALOGS:-500} S3O_DAMAGE_SEED=$${S3O_DAMAGE_SEED:-$$(date +%s)} \
		S3O_SUITES=damage scripts/test.sh

check: ## check format, lints, documentation and tidy rules without running the product
	scripts/check.sh

fuzz: ## run new inputs for every fuzz target, S3O_FUZZ_SECONDS each; TARGET selects targets by name
	S3O_FUZZ_SECONDS=$${S3O_FUZZ_SECONDS:-60} $(CARGO) test -p s3o-tests --test fuzz -- --nocapture $(TARGET)

chaos: ## run instances, database and stores under random faults for S3O_CHAOS_SECONDS
	S3O_CHAOS_SECONDS=$${S3O_CHAOS_SECONDS:-600} S3O_CHAOS_SEED=$${S3O_CHAOS_SEED:-$$(date +%s)} \
		S3O_SUITES=chaos scripts/test.sh

drills: ## fail each store in turn, drain 100,000 objects, run idle workers over a million contents
	S3O_STORE_FAULT_SECONDS=$${S3O_STORE_FAULT_SECONDS:-10} S3O_DRAIN_OBJECTS=$${S3O_DRAIN_OBJECTS:-100000} \
		S3O_TRASH_OBJECTS=$${S3O_TRASH_OBJECTS:-100000} \
		S3O_IDLE_CONTENTS=$${S3O_IDLE_CONTENTS:-1000000} S3O_SUITES=drills scripts/test.sh

bench: ## build a release, start private servers, measure them, print tables
	scripts/bench.sh

setup: ## install what the tests need
	scripts/setup.sh
