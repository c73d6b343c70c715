#!/usr/bin/env bash
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Builds the archive, installs it without network and reads it back as a user's Ansible does.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

archive=$(tools/dist "$work")
export ANSIBLE_COLLECTIONS_PATH=$work/installed PYTHONPATH=
ansible-galaxy collection install --offline --no-deps --collections-path "$work/installed" "$archive"
ansible-galaxy collection verify --offline mission_control.job_recovery

installed=$work/installed/ansible_collections/mission_control/job_recovery
for wanted in LICENSE README.md meta/runtime.yml extensions/eda/rulebooks/recovery.yml playbooks roles \
    plugins/modules charts/job-recovery/Chart.yaml charts/job-recovery/templates/account.tpl \
    charts/job-recovery-monitoring/files/dashboards/job-recovery-overview.json; do
    [ -e "$installed/$wanted" ] || { echo "the archive lacks $wanted"; exit 1; }
done
for unwanted in .git .build .lab lab tools molecule tests/lab tests/output; do
    [ ! -e "$installed/$unwanted" ] || { echo "the archive must not hold $unwanted"; exit 1; }
done
# Its documentation is found: every module by its full name.
modules=()
for module in "$installed"/plugins/modules/[!_]*.py; do
    modules+=("mission_control.job_recovery.$(basename "$module" .py)")
done
ansible-doc --type module "${modules[@]}" >/dev/null
