PYTHON ?= python3

.PHONY: check test laws scenarios mutants protos protos-check pages cluster chart bench

check:
	ruff check .
	ruff format --check .
	mypy
	PYTHONPATH=src $(PYTHON) -m docs.generate --check

test:
	$(PYTHON) -m pytest -n 3

laws:
	OUTRIDER_LAW_ROUNDS=100000 $(PYTHON) -m pytest -n 3 tests/laws

scenarios:
	outrider simulate bench/scenarios

mutants:
	nice -n 15 $(PYTHON) -m tests.mutants $(MUTANTS)

protos:
	protos/generate

protos-check:
	tmp=$$(mktemp -d) && protos/generate $$tmp && diff -r -x __init__.py -x __pycache__ $$tmp/outrider/v1 src/outrider/v1; rc=$$?; rm -rf $$tmp; exit $$rc

pages:
	PYTHONPATH=src $(PYTHON) -m docs.generate

cluster:
	$(PYTHON) -m bench.network.cluster_nodes

chart:
	PYTHONPATH=src $(PYTHON) -m helm.generate --check
	for values in helm/outrider/ci/*-values.yaml; do \
	  helm lint --strict --quiet helm/outrider --values $$values && \
	  helm template demo helm/outrider --values $$values >/dev/null || exit 1; \
	done

bench:
	$(PYTHON) -m bench
