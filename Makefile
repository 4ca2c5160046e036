# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

PYTHON := build/venv/bin/python
GATE := $(PYTHON) tools/gate.py
TREE = $(shell python3 tools/collection_tree.py link)
RUN = PATH="$(CURDIR)/build/venv/bin:$$PATH" ANSIBLE_COLLECTIONS_PATH="$(TREE)" PYTHONDONTWRITEBYTECODE=1

.DEFAULT_GOAL := help
.PHONY: help venv packages lock lint doc units simulator matrix sanity lab-test molecule test test-full demo bench \
	build release-check clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

packages:  ## Install the Debian packages that are missing (needs root)
	@tools/install_packages.sh

venv: packages  ## Development environment with locked tools, in build/venv
	@python3 tools/environments.py make 3.11 >/dev/null

lock: packages  ## Resolve the tools named in pyproject.toml anew, into requirements.lock
	@python3 tools/environments.py lock

test: venv  ## Everything; what CI runs
	@$(GATE) all

test-full: venv  ## The same, with the whole matrices
	@GPU_HOST_FULL=1 $(GATE) all

lint: venv  ## ansible-lint, yamllint, ruff, documentation, changelog and licences
	@$(GATE) lint

doc: venv  ## ansible-doc of every module, role and plugin is complete
	@$(GATE) doc

units: venv  ## Unit tests on Python 3.11
	@$(GATE) units

simulator: venv  ## Tests of the NVML simulator
	@$(GATE) simulator

matrix: venv  ## Unit tests on every Python here, with every ansible-core
	@$(GATE) matrix

sanity: venv  ## ansible-test sanity and units
	@$(GATE) sanity

lab-test: venv  ## Tests on simulated GPU hosts (needs root)
	@$(GATE) lab integration

molecule: venv  ## Scenarios on simulated GPU hosts (needs root)
	@$(GATE) molecule

demo: venv  ## Three simulated GPU hosts, site.yml twice over SSH; leaves nothing behind
	@$(RUN) $(PYTHON) tools/demo.py

bench: venv  ## Second run of a profile against one ping and against stock modules
	@$(RUN) $(PYTHON) benchmarks/bench.py

build: venv  ## The tarball, in build/dist
	@$(RUN) build/venv/bin/ansible-galaxy collection build --force --output-path build/dist

release-check: venv  ## Build the tarball, install it offline somewhere empty; its documentation and playbooks work there
	@$(GATE) release

clean:  ## Remove build/ (stops nothing that runs)
	rm -rf build
