# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps, one file each. `plans` has their order and their meaning, `step` what they get and give.

What steps remember for later ones (an incident's memory):

| key                                       | by           | for                                                   |
|-------------------------------------------|--------------|-------------------------------------------------------|
| `boot_id`                                 | the decision | the boot that the repair began from                   |
| `same_boot`                               | the decision | whether a node that came back still had that boot     |
| `slurm_before`, `jobs`                    | drain        | verify; free_jobs                                     |
| `job_nodes`                               | drain        | the order: the widest job comes first                 |
| `boot_id`, `slurmd_start_before`          | reboot, fence | await_boot: the boot that ended, its registration    |
| `loss`                                    | rerun        | rerun itself: what the pods told while they were there |
| `evicting_since`                          | await_drained | its own deadline for pods                            |
| `reboot_at`, `power_off_at`, `power_on_at`| reboot, fence, power_on | the timeline                               |
| `diagnosis`                               | diagnose     | tell                                                  |
| `evidence`                                | save_evidence, verify, diagnose | people: the folder         |
| `power_off_proved`                        | fence, power_on | down, release_pods, free_jobs                      |
| `new_boot_id`                             | await_boot   | later steps, which act on this boot only              |
| `restart_count`, `rerun_as`               | requeue, rerun | confirm                                             |
| `job_seen`, `completed_run`, `failed_run` | the decision | requeue; `job_runs`, at the job's next incident       |
| `successor`                               | the decision | release_successor, tell, confirm                      |
| `report`                                  | the decision | stop_gpu_clients, reset_gpu, verify; the next report  |
| `gpu_reset`                               | stop_gpu_clients | reset_gpu, start_gpu_clients: the node's record   |
| `attempt`, `tell`, `did`, `excluded`      | the decision, requeue | tell                                         |
"""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Step
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_boot import AwaitBoot
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_drained import (
    AwaitDrained,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_job_end import (
    AwaitJobEnd,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.clean_spool import CleanSpool
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.confirm import Confirm
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.cordon import Cordon
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.diagnose import Diagnose
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.down import Down
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.drain import Drain
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.end_orphans import EndOrphans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.fence import Fence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.free_jobs import FreeJobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.gpu_clients import (
    StartGpuClients,
    StopGpuClients,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.power_on import PowerOn
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.reboot import Reboot
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.release_pods import (
    ReleasePods,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.release_successor import (
    ReleaseSuccessor,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.requeue import Requeue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.rerun import Rerun
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.reset_gpu import ResetGpu
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.restart_daemon import (
    RestartDaemon,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.resume import Resume
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.save_evidence import (
    SaveEvidence,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.tell import Tell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.uncordon import Uncordon
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.verify import Verify

STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        AwaitBoot(),
        AwaitDrained(),
        AwaitJobEnd(),
        CleanSpool(),
        Confirm(),
        Cordon(),
        Diagnose(),
        Down(),
        Drain(),
        EndOrphans(),
        Fence(),
        FreeJobs(),
        PowerOn(),
        Reboot(),
        ReleasePods(),
        ReleaseSuccessor(),
        Requeue(),
        Rerun(),
        ResetGpu(),
        RestartDaemon(),
        Resume(),
        SaveEvidence(),
        StartGpuClients(),
        StopGpuClients(),
        Tell(),
        Uncordon(),
        Verify(),
    )
}
