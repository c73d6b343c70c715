# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules that ask a web service behind an Ingress."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation fragment."""

    DOCUMENTATION = r"""
options:
  url:
    description: The service's address, C(https://HOST[:PORT][/PATH]), without credentials.
    type: str
    required: true
  address:
    description:
      - Where to connect instead of looking the host of O(url) up, such as the cluster's IP. The request, and the
        certificate, are still about the host of O(url).
    type: str
    default: ""
  ca_file:
    description: File with the certificate authority of the service's certificate; without it the system's.
    type: path
  validate_certs:
    description:
      - Whether the certificate is verified. Without that, whoever stands in between reads the credentials; it is then a
        warning.
    type: bool
    default: true
  timeout:
    description: Deadline of each request in seconds.
    type: float
    default: 10.0
"""
