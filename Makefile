# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.DEFAULT_GOAL := help
SCENARIO ?=
PYTHON_VERSION ?=
NAME ?=
SEED ?=
MINUTES ?= 5
ROUNDS ?= 0
BOUNDARIES ?=

.PHONY: help demo test lint sanity unit molecule bench chaos lab-up lab-down env pins wheelhouse bundle changelog dashboards dist clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:  ## builds a cluster on this machine, breaks it and shows it recover (as root)
	@tools/with-env lab/demo

test:  ## everything below up to molecule; ends with "N passed, N failed"
	@tools/check

lint:  ## ruff, yamllint, shellcheck, ansible-lint, rulebooks, documentation, archive
	@tools/check lint

sanity:  ## ansible-test's sanity tests
	@tools/check sanity

unit:  ## pytest
	@tools/check unit

molecule:  ## scenarios on the lab (as root); one of them: make molecule SCENARIO=name
	@tools/check molecule --scenario=$(SCENARIO)

bench:  ## how long things take, against their budgets (the lab's as root); some of them: make bench NAME=name
	@tools/with-env python tests/bench $(NAME)

chaos:  ## kills and stops the engine at moments that nobody chose: make chaos SEED=1 MINUTES=5
	@tools/with-env python tests/chaos $(if $(SEED),--seed=$(SEED)) --minutes=$(MINUTES) \
	  $(if $(BOUNDARIES),--boundaries) --rounds=$(ROUNDS)

lab-up:  ## starts the disposable cluster (as root); a second time changes nothing
	@tools/with-env lab/up

lab-down:  ## removes the disposable cluster
	@tools/with-env lab/down

env:  ## makes the tool environment and prints its folder
	@tools/environment

pins:  ## writes requirements/*.txt anew from requirements/*.in
	@tools/pin-requirements

wheelhouse:  ## collects the controller's Python packages for sites without network; prints the folder
	@tools/wheelhouse

bundle:  ## one archive with all that a site without network needs; another Python: make bundle PYTHON_VERSION=3.12
	@tools/bundle $(PYTHON_VERSION)

changelog:  ## writes CHANGELOG.md for the version in galaxy.yml, at a release
	@tools/with-env antsibull-changelog release

dashboards:  ## writes Grafana's dashboards into their chart
	@tools/with-env python tools/monitoring

dist:  ## builds the collection's archive into .build/dist
	@tools/dist

clean:  ## removes what was built in this checkout; the lab must be down
	@tools/clean
