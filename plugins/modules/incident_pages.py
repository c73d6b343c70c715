#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the pages of incidents; the work is in module_utils/show/publish.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: incident_pages
short_description: Write what recovery has seen, decided and done as HTML pages
version_added: 0.1.0
description:
  - Makes C(index.html), a list of what is going on, what waits for a person, all incidents, refusals and commands, and
    one page for each incident with what was seen, decided and done, from what
    M(mission_control.job_recovery.recovery_incident_info) returns.
  - The pages are self-contained. They have no script and load nothing, and every text on them is escaped.
  - Pages of incidents that are not told any more are removed; other files in the folder are left alone.
options:
  incidents:
    description: The incidents.
    type: list
    elements: dict
    required: true
  refusals:
    description: The refusals.
    type: list
    elements: dict
    default: []
  overview:
    description: The overview.
    type: dict
    required: true
  dest:
    description:
      - The folder. It is made where it is missing, readable by its owner and group alone, and so are the pages, which
        hold names of jobs and lines of logs.
    type: path
    required: true
attributes:
  check_mode:
    description: Writes nothing.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
seealso:
  - module: mission_control.job_recovery.recovery_incident_info
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Read the ledger
  mission_control.job_recovery.recovery_incident_info:
    limit: 200
  register: ledger

- name: Write the pages
  mission_control.job_recovery.incident_pages:
    incidents: "{{ ledger.incidents }}"
    refusals: "{{ ledger.refusals }}"
    overview: "{{ ledger.overview }}"
    dest: /var/www/job-recovery
"""

RETURN = r"""
index:
  description: The list's path.
  returned: success
  type: str
  sample: /var/www/job-recovery/index.html
pages:
  description: Number of incidents with a page.
  returned: success
  type: int
  sample: 12
removed:
  description: Names of the pages that were removed.
  returned: success
  type: list
  elements: str
  sample: [incident-3.html]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.publish import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
