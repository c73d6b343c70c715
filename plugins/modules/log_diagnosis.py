#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what a log tells; the work is in module_utils/logs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: log_diagnosis
short_description: Say what the log of a job tells, and whose fault it is
version_added: 0.1.0
description:
  - Reads a text, the last part of a file, or the last lines that Loki has.
  - Names the faults that it tells, such as those of CUDA, NCCL, the
    network, file systems, memory, Python, MPI and Slurm, with the lines that say so.
  - The verdict is V(hardware), V(platform) (the cluster, its network, file systems or drivers), V(application) or
    V(unknown). Unknown is an answer.
  - A job's log is its user's text and proves nothing about a node, so no action that takes a node out of service
    follows from it. Only lines of the kernel's log can (Xids and SXids of GPUs, machine checks, disks, memory, links).
  - Of NCCL time-outs, which appear on all ranks, it names the rank that the others waited for, where the log tells it.
options:
  loki:
    description:
      - Where the log is read from Loki. At most the last 5000 lines are.
      - Its certificate is always verified, and credentials are sent over HTTPS only.
    type: dict
    suboptions:
      url:
        description: Loki's address, C(https://HOST[:PORT][/PATH]), without credentials.
        type: str
        required: true
      address:
        description: Where to connect instead of looking the host of the URL up.
        type: str
        default: ""
      ca_file:
        description: File with the certificate authority of Loki's certificate; without it the system's.
        type: path
      credentials_file:
        description: File that holds C(user:password) and nothing else. It belongs to who runs the module, mode 0600.
        type: path
      tenant:
        description: The tenant whose logs are asked for (C(X-Scope-OrgID)), where Loki has several.
        type: str
        default: ""
      query:
        description: A LogQL query for lines.
        type: str
      job:
        description: A Slurm job's id, in place of a query.
        type: str
      job_label:
        description: The label that holds the ids of Slurm jobs.
        type: str
        default: slurm_job_id
      pod:
        description: A pod as C(namespace/name), in place of a query.
        type: str
      since:
        description: Seconds that are looked back.
        type: int
        default: 3600
  text:
    description: The log.
    type: str
  path:
    description:
      - The log's file. Its last part is read, whatever its encoding. What is no regular file is refused, and so is a
        path that ends in a symbolic link.
    type: path
  user:
    description:
      - Name or number of the user as whom the file is read, the job's own, so that a path leads nowhere where he could
        not go himself. Another than the one who runs the module wants root.
      - Without it the user who runs the module.
    type: str
  source:
    description:
      - What the log is. V(any) reads lines of both kinds wherever they stand. Say V(job) of a log that a user wrote and
        that is not to be believed about the node.
    type: str
    choices: [any, job, kernel]
    default: any
  max_bytes:
    description: How much is read, counted from the end; 2 MiB at most.
    type: int
    default: 2097152
  timeout:
    description: Seconds after which a file is given up that cannot be read, such as one on a file server that is down;
      so is Loki.
    type: float
    default: 10.0
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Ask what a job's log says
  mission_control.job_recovery.log_diagnosis:
    path: /home/alice/slurm-4711.out
    user: alice
    source: job
  become: true
  register: log

- name: Show it
  ansible.builtin.debug:
    msg: "{{ log.verdict }}: {{ log.why }}"

- name: The same of a text
  mission_control.job_recovery.log_diagnosis:
    text: |
      RuntimeError: CUDA error: uncorrectable ECC error encountered

- name: Ask what Loki has of a pod
  mission_control.job_recovery.log_diagnosis:
    loki:
      url: https://loki.example.org
      credentials_file: /etc/job-recovery/loki.credentials
      pod: training/llm-0-x7k2p
      since: 7200
    source: job

- name: Ask what the kernel says
  mission_control.job_recovery.log_diagnosis:
    text: "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    source: kernel
"""

RETURN = r"""
verdict:
  description: One of V(hardware), V(platform), V(application) and V(unknown).
  returned: success
  type: str
  sample: application
action:
  description: >-
    One of V(ignore), V(report), V(restart_app), and where the kernel's log says so V(reset_gpu), V(reboot) and
    V(drain_and_report).
  returned: success
  type: str
  sample: restart_app
why:
  description: >-
    The code of the fault that decided; V(kernel_log) where the kernel's log proves that hardware failed,
    V(nothing_found) where no line tells of a fault.
  returned: success
  type: str
  sample: segfault
findings:
  description: The faults, the one that decided first.
  returned: success
  type: list
  elements: dict
  contains:
    code:
      description: The fault.
      type: str
      returned: always
      sample: segfault
    family:
      description: The group of the fault.
      type: str
      returned: always
      sample: process
    verdict:
      description: As above, of this fault alone.
      type: str
      returned: always
      sample: application
    action:
      description: As above, of this fault alone.
      type: str
      returned: always
      sample: restart_app
    severity:
      description: V(fatal), V(nonfatal), or empty where the log does not say.
      type: str
      returned: always
      sample: ""
    device:
      description: What failed, such as a GPU's PCI address or a port; empty where the log does not say.
      type: str
      returned: always
      sample: mlx5_0:1
    pid:
      description: Of the process.
      type: int
      returned: always
      sample: 4711
    process:
      description: Its name, or empty.
      type: str
      returned: always
      sample: ""
    rank:
      description: Of the job's process that failed first.
      type: int
      returned: always
      sample: 3
    cause:
      description: The code of an earlier fault that brought this one about, or empty.
      type: str
      returned: always
      sample: ""
    count:
      description: How often it was seen.
      type: int
      returned: always
      sample: 1
    first:
      description: When it was seen first, in seconds since the epoch; none where the log has no times.
      type: float
      returned: always
      sample: 1767225600.0
    last:
      description: When it was seen last.
      type: float
      returned: always
      sample: 1767225600.0
    lines:
      description: The first lines that say so, each bounded.
      type: list
      elements: dict
      returned: always
      contains:
        number:
          description: The line's number in what was read.
          type: int
          returned: always
          sample: 812
        text:
          description: The line.
          type: str
          returned: always
          sample: "srun: error: node6: task 3: Segmentation fault (core dumped)"
lines_read:
  description: How many lines Loki gave.
  returned: when loki was given
  type: int
  sample: 812
size:
  description: The size of the whole file in bytes.
  returned: when a path was given
  type: int
  sample: 73400320
modified:
  description: When the file was written to last, in seconds since the epoch.
  returned: when a path was given
  type: float
  sample: 1767225600.0
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.diagnosis import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
