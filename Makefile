# Sluice. `make` tells the targets. Everything that set-up makes lies in .venv/, .venv-airflow2/ and .sluice/, below this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# ------------------------------------------------------------------------------------------------ what you may set
# Exported and then read by the shell as "$$PIPELINE": a value is never pasted into a command.
PIPELINE ?= gym
FROM ?=
AIRFLOW ?= 3
export PIPELINE FROM AIRFLOW
# AIRFLOW=2             the second line of Airflow, in an environment and a home of its own; the lake is the same
# ARGS                  more for pytest, as the shell reads it: make test ARGS="-k 'doctor or setup'"
# PYTHON                which Python the environment is made from (3.11 or 3.12); found by itself otherwise
# SLUICE_AIRFLOW_PORT   the port of Airflow's UI; otherwise 8080, or a free one
# WITHOUT_ARCHIVE=yes   Spark's classes are not recorded, which takes longer than it saves where no Spark is started
# SLUICE_IVY_SETTINGS   an ivysettings.xml that names a mirror of Maven Central
# UV_..., PIP_...       indexes and mirrors of Python packages, as uv and pip read them

VENV := $(if $(filter 2,$(AIRFLOW)),.venv-airflow2,.venv)
REQUIREMENTS := $(if $(filter 2,$(AIRFLOW)),requirements-airflow2.txt,requirements.txt)
STATE := .sluice
PY := $(VENV)/bin/python
CONF := spark_jobs/conf
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)

# Stamps carry the checksum of what they were made from: same input, nothing to do; also after a checkout that changes times.
key = $(shell cat $(1) | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/.installed-$(call key,requirements-build.txt $(REQUIREMENTS))
PROJECT := $(VENV)/.project-$(call key,pyproject.toml)
JARS := $(STATE)/jars/.verified-$(call key,$(CONF)/delta-jars.xml $(CONF)/delta-jars.sha256)
ARCHIVE := $(VENV)/.archive-$(call key,$(REQUIREMENTS) $(CONF)/delta-jars.sha256 $(CONF)/class_archive.py)
STORE_JARS := $(STATE)/store-jars/.verified-$(call key,$(CONF)/s3-jars.xml $(CONF)/s3-jars.sha256)
YARN_JARS := $(STATE)/yarn-jars/.verified-$(call key,tests/system/yarn-jars.xml tests/system/yarn-jars.sha256)
LOG_STORE := $(STATE)/log-store/.compiled-$(call key,$(CONF)/log-store-compiler.sha256 $(CONF)/delta-jars.sha256 $(wildcard spark_jobs/java/sluice/*.java))
HOME_READY := $(VENV)/.airflow-$(call key,$(REQUIREMENTS) $(wildcard include/orchestration/server/home.py))

# ------------------------------------------------------------------------------------------------ what you call
.PHONY: help
help: ## Tell the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1|/' | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: run
run: port setup $(HOME_READY) ## Set up, then three runs of a DAG through Airflow (PIPELINE=gym; or PIPELINE=italy FROM=archive)
	@$(PY) -m sluice.cli tour "$$PIPELINE" $${FROM:+--from "$$FROM"}

.PHONY: run-cluster
run-cluster: port setup-store $(HOME_READY) ## The same runs on a Spark master, two workers and an S3 server, which this machine runs for them
	@$(PY) -m demonstrations.cluster "$$PIPELINE"

.PHONY: demo-erasure
demo-erasure: setup ## Set up, then erase one member of a made-up gym and prove it (some minutes, no Airflow)
	@$(PY) -m sluice.cli demo-erasure

# Tests whose lakes lie on a store, again beside those on a disk: each test process has an S3 server of its own.
ON_STORE = tests/integration tests/crash --lake-on-store --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: test
# Two processes, each with a Spark session of its own: one alone leaves half of two cores idle between its many small jobs.
test: setup-store ## Set up, then run the tests (ARGS="-k name" chooses; THOROUGH=yes runs those of edges, too)
	@$(PY) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(if $(THOROUGH),-m "not slow and not system") $(ARGS)
	@$(if $(ARGS)$(WITHOUT_STORE),true,$(MAKE) --no-print-directory test-store-first)

# Each of the two processes makes its own lake of what the tests begin with: together they are done sooner than one alone.
.PHONY: test-store-first
test-store-first: setup-store ## Those tests with their lakes on an object store that are in `make test`
	@$(PY) -m pytest $(subst loadfile,load,$(ON_STORE)) -m "on_store(first=True) and not slow and not system" $(ARGS)

.PHONY: test-store
test-store: setup-store ## The tests marked on_store, with their lakes on an object store; a part of them is in `make test`
	@$(PY) -m pytest $(ON_STORE) -m "on_store and not slow and not system" $(ARGS)

.PHONY: kafka-jars
kafka-jars: | $(INSTALLED)
	@$(PY) -m tests.fetched_jars kafka-jars

.PHONY: test-all
test-all: setup-store $(YARN_JARS) ## The tests and the long ones too
	@$(PY) -m pytest -m "slow or system or not slow" $(ARGS)

.PHONY: test-system
test-system: setup-store ## The tests that start Airflow, servers or several Spark processes, but for the longest
	@$(PY) -m pytest -m "system and not slow" $(ARGS)

.PHONY: test-slow
test-slow: setup-store $(YARN_JARS) ## The slow tests that are this commit's turn, at most 12 minutes (TURN=174 takes another's)
	@$(PY) -m pytest -m slow --slow-turn "$${TURN:-HEAD}" $(ARGS)

.PHONY: up
up: setup $(HOME_READY) ## Start Airflow with its UI on 127.0.0.1; address and login are printed
	@$(PY) -m sluice.cli up

.PHONY: down
down: ## Stop what `make up` started
	@if [ -x $(PY) ]; then $(PY) -m sluice.cli down; else echo "Nothing is set up here, so nothing runs."; fi

.PHONY: compose-check
compose-check: setup-python ## Check docker-compose.yaml and docker-compose.store.yaml: by the specification, and by docker compose where that is
	@VENV=$(VENV) .ci/compose-check

.PHONY: sbom
sbom: machine ## Write .sluice/sbom.cdx.json: what set-up installs, with checksums, as CycloneDX
	@$(find_python); mkdir -p $(STATE); \
	if [ -n "$(UV)" ]; then uv venv --quiet --clear --python "$$python" $(STATE)/sbom; else "$$python" -m venv --clear $(STATE)/sbom; fi
	@$(call install_locked,$(STATE)/sbom/bin/python,requirements-sbom.txt)
	@$(STATE)/sbom/bin/python .ci/sbom.py $(REQUIREMENTS) $(CONF) $(STATE)/sbom.cdx.json

.PHONY: env
env: ## Make .env, the secrets of docker-compose.yaml and docker-compose.store.yaml
	@$(find_python); "$$python" -I include/orchestration/server/environment_file.py

.PHONY: lint
lint: setup-python ## Style, format, types, and the arrows between packages
	@if [ "$$AIRFLOW" != 3 ]; then echo "Types are those of Airflow 3: make lint, without AIRFLOW=$$AIRFLOW." >&2; exit 2; fi
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

.PHONY: bench
bench: setup ## Run the short form of all benchmarks, at most 20 minutes, into benchmarks/results.md (ARGS="--only bulk")
	@$(PY) benchmarks/_all.py --write benchmarks/results.md $(ARGS)

.PHONY: bench-full
bench-full: setup ## Run all benchmarks as they are by themselves, which takes hours
	@$(PY) benchmarks/_all.py --long --write benchmarks/results.md $(ARGS)

.PHONY: clean
clean: ## Remove environments, caches and Airflow's homes; keep data (DATA=yes: remove ./lake ./restricted ./landing ./truth too; never ./secrets ./vault ./released)
	@for environment in .venv .venv-airflow2; do \
	  if [ -x $$environment/bin/sluice ]; then $$environment/bin/sluice down >/dev/null 2>&1 || true; fi; done
	@rm -rf .venv .venv-airflow2 $(STATE) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache include/*.egg-info build
	@find dags include spark_jobs tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
ifeq ($(DATA),yes)
	@rm -rf ./lake ./restricted ./landing ./truth
	@echo "Removed the environments, caches, Airflow's homes, and ./lake ./restricted ./landing ./truth. Kept: secrets/ (keys), vault/ (identifiers of people who asked to be erased, in clear), released/ (copies)."
else
	@echo "Removed the environments, caches and Airflow's homes. Kept: lake/ restricted/ landing/ truth/ (make clean DATA=yes removes these) and secrets/ vault/ released/ (which it does not)."
endif

# ------------------------------------------------------------------------------------------------ set-up, each step once
.PHONY: setup setup-store setup-python installed delta-jars store-jars port machine airflow-line requirements
setup: setup-python $(JARS) $(if $(WITHOUT_ARCHIVE),,$(ARCHIVE)) ## Set up only, what every target does first

setup-store: setup store-jars ## Set up what a lake on an object store needs as well: Spark's S3A, and what commits there (19 MB)

setup-python: machine $(INSTALLED) $(PROJECT)

installed: machine $(INSTALLED) # the packages alone: what may go on while another environment is made

# Once the Delta jars are there, the jars of stores may be fetched while `setup` records classes.
delta-jars: machine $(JARS)

store-jars: machine $(STORE_JARS) $(LOG_STORE)

requirements:
	@for list in requirements-build requirements requirements-airflow2 requirements-sbom; do \
	  uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --exclude-newer $$(date -u +%F) $$list.in -o $$list.txt; done

airflow-line:
	@case "$$AIRFLOW" in 2|3) ;; *) echo "AIRFLOW is '$$AIRFLOW'; expected 3 (which it is by itself) or 2." >&2; exit 2;; esac

# The first Python that runs and is of the right version: being on PATH proves nothing (pyenv's shims are there and fail).
# Without uv it must be able to make environments as well. With uv and no such Python, uv fetches one.
find_python = choices="$(or $(PYTHON),$(PY) python3.11 python3.12 python3 python)"; \
	test='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; \
	[ -n "$(UV)" ] || test="import ensurepip, venv; $$test"; \
	python=; for choice in $$choices; do if "$$choice" -c "$$test" >/dev/null 2>&1; then python=$$choice; break; fi; done; \
	if [ -z "$$python" ] && [ -n "$(UV)" ] && [ -z "$(PYTHON)" ]; then \
	  echo "== No Python 3.11 or 3.12 here: uv fetches one" >&2; uv python install --quiet 3.11; python=$$(uv python find 3.11); fi; \
	if [ -z "$$python" ]; then \
	  echo "FAIL  python: none of \"$$choices\" runs as Python 3.11 or 3.12 with venv. Install python3.11 and python3.11-venv, or uv, or name one: PYTHON=/its/path make ..." >&2; exit 2; fi

# Compiled at once: where a machine forbids bytecode (PYTHONDONTWRITEBYTECODE), Airflow would compile itself at every start.
# An environment that uv made has no pip; ensurepip gives it one where uv has gone.
install_into = if [ -n "$(UV)" ]; then uv pip install --quiet --python $(1) --compile-bytecode $(2); \
	else $(1) -m pip --version >/dev/null 2>&1 || $(1) -m ensurepip >/dev/null; \
	  $(1) -m pip install --quiet --disable-pip-version-check $(2); fi
install = $(call install_into,$(PY),$(1))
# Nothing is taken whose checksum is not in the list, and what comes as source is built by what the first list pins.
install_locked = $(call install_into,$(1),--require-hashes -r requirements-build.txt) && \
	$(call install_into,$(1),--require-hashes --no-build-isolation -r $(2))

machine: airflow-line
	@$(find_python); "$$python" -I include/sluice/doctor.py --quiet --environment $(VENV)
ifdef PYTHON
	@ask='import sys; print("%d.%d" % sys.version_info[:2])'; want=$$("$(PYTHON)" -c "$$ask"); have=$$($(PY) -c "$$ask" 2>/dev/null || echo none); \
	if [ "$$have" != none ] && [ "$$have" != "$$want" ]; then \
	  echo "FAIL  python: $(VENV) holds Python $$have, PYTHON is $$want. Run make clean first, or leave PYTHON out." >&2; exit 2; fi
endif

port: machine
	@$(find_python); "$$python" -I include/sluice/doctor.py --quiet --port --environment $(VENV)

$(INSTALLED): | machine
	@$(find_python); \
	if ! $(PY) -c '' 2>/dev/null; then echo "== Making $(VENV) with $$($$python -V)"; \
	  if [ -n "$(UV)" ]; then uv venv --quiet --clear --python "$$python" $(VENV); else "$$python" -m venv --clear $(VENV); fi; fi
	@echo "== Installing $$(grep -c '^[a-z]' $(REQUIREMENTS)) packages with $(or $(UV),pip) (1.6 GB; a minute or two)"
	@$(call install_locked,$(PY),$(REQUIREMENTS))
	@rm -f $(VENV)/.installed-*; touch $@

$(PROJECT): $(INSTALLED)
	@$(call install,--no-deps --no-build-isolation -e .)
	@rm -rf include/*.egg-info  # left by the build; a second description of the project, by which Airflow would load its plugin twice
	@rm -f $(VENV)/.project-*; touch $@

# PySpark's own Ivy fetches the jars of a list into a folder aside, which is moved into place when every checksum is right.
# Each list has a cache and a log of its own: two may be fetched at a time.
# fetch_jars: the list, without .xml; the folder in $(STATE).
define fetch_jars
	@rm -rf $(STATE)/$(2) $(STATE)/$(2).part $(STATE)/$(2).ivy; mkdir -p $(STATE)
	@ivy=$$(echo $(VENV)/lib/python3.*/site-packages/pyspark/jars/ivy-2*.jar); \
	java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	"$$java" -jar "$$ivy" -error $${SLUICE_IVY_SETTINGS:+-settings "$$SLUICE_IVY_SETTINGS"} -cache $(STATE)/$(2).ivy \
	  -ivy $(1).xml -retrieve "$(STATE)/$(2).part/[artifact]-[revision].[ext]" >$(STATE)/$(2).ivy.log 2>&1 || \
	{ grep -m1 -iE 'server access error|not found|exception' $(STATE)/$(2).ivy.log >&2 || true; \
	  echo "FAIL  jars: Ivy could not fetch them (all it said: $(STATE)/$(2).ivy.log). Behind a mirror, name it in an ivysettings.xml and that in SLUICE_IVY_SETTINGS." >&2; exit 2; }
	@$(PY) -I include/sluice/doctor.py --quiet --jars $(STATE)/$(2).part $(1).sha256
	@mv $(STATE)/$(2).part $(STATE)/$(2); rm -rf $(STATE)/$(2).ivy
endef

$(JARS): | $(INSTALLED)
	@echo "== Fetching the five Delta jars"
	$(call fetch_jars,$(CONF)/delta-jars,jars)
	@touch $@

$(YARN_JARS): | $(INSTALLED)
	@echo "== Fetching YARN, which a slow test runs (66 MB)"
	$(call fetch_jars,tests/system/yarn-jars,yarn-jars)
	@touch $@

$(STORE_JARS): | $(INSTALLED)
	@echo "== Fetching what Spark needs for S3"
	$(call fetch_jars,$(CONF)/s3-jars,store-jars)
	@touch $@

# A Java runtime has no javac, so a compiler is fetched as well, and removed again.
$(LOG_STORE): | $(INSTALLED) $(JARS)
	@echo "== Compiling what commits to a store"
	$(call fetch_jars,$(CONF)/log-store-compiler,log-store-compiler)
	@rm -rf $(STATE)/log-store $(STATE)/log-store.part; mkdir -p $(STATE)/log-store.part
	@spark=$$(echo $(VENV)/lib/python3.*/site-packages/pyspark/jars); \
	classes=$$(echo $(STATE)/jars/delta-storage-*.jar $$spark/hadoop-client-api-*.jar $$spark/spark-sql_*.jar $$spark/spark-common-utils*.jar $$spark/scala-library-*.jar | tr ' ' :); \
	"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -jar $(STATE)/log-store-compiler/ecj-*.jar --release 17 -cp "$$classes" \
	  -d $(STATE)/log-store.part/classes spark_jobs/java/sluice/*.java
	@cd $(STATE)/log-store.part/classes && "$$OLDPWD/$(PY)" -m zipfile -c ../log-store.jar sluice && rm -rf ../classes
	@mv $(STATE)/log-store.part $(STATE)/log-store; rm -rf $(STATE)/log-store-compiler; touch $@

# A class data archive: each start of Spark is some 4 s shorter. It is verified before it is moved into place, because a JVM
# trusts it: a broken one crashes (a missing one, or one of another JVM, is passed over). Without it all works, only slower,
# so that a failure here stops nothing. SPARK_CONF_DIR stays out: with a folder on the class path there can be no archive.
$(ARCHIVE): $(INSTALLED) $(JARS)
	@echo "== Recording the classes that Spark loads (half a minute; makes every start 4 s shorter)"
	@rm -rf $(VENV)/spark.jsa $(STATE)/archive; mkdir -p $(STATE)/archive/work
	@cd $(STATE)/archive; root="$${PWD%/$(STATE)/archive}"; unset SPARK_CONF_DIR; \
	export SPARK_HOME=$$(echo "$$root"/$(VENV)/lib/python3.*/site-packages/pyspark) SPARK_DIST_CLASSPATH="$$root/$(STATE)/jars/*" \
	  SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS="$$PWD" PYSPARK_PYTHON="$$root/$(PY)" TZ=UTC; \
	record="-Dlog4j2.configurationFile=\"file:$$root/$(CONF)/log4j2.properties\" -XX:ArchiveClassesAtExit=\"$$PWD/spark.jsa\" -Xlog:disable"; \
	verify="-XX:SharedArchiveFile=\"$$PWD/spark.jsa\" -Xshare:on -XX:+VerifySharedSpaces"; \
	if { SPARK_SUBMIT_OPTS="$$record" "$$root/$(VENV)/bin/spark-submit" --master 'local[2]' \
	       --properties-file "$$root/$(CONF)/spark-defaults.conf" "$$root/$(CONF)/class_archive.py" "$$PWD/work" \
	     && SPARK_SUBMIT_OPTS="$$verify" "$$root/$(VENV)/bin/spark-submit" --version; } >"$$root/$(STATE)/archive.log" 2>&1; \
	then mv spark.jsa "$$root/$(VENV)"; else echo "   not recorded (why: $(STATE)/archive.log); Spark starts without it"; fi
	@rm -rf $(STATE)/archive $(VENV)/.archive-*; touch $@

$(HOME_READY): $(INSTALLED) $(PROJECT)
	@echo "== Preparing Airflow's home"
	@mkdir -p $(STATE); $(PY) -m orchestration.local prepare
	@rm -f $(VENV)/.airflow-*; touch $@
