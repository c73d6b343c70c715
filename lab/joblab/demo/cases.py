# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of the demonstration. Each one breaks something under a running job and watches what becomes of it.

A case knows nothing of the recovery: it runs the same with the service stopped and with the service at work.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from .. import command, pki, progress
from ..errors import LabError
from ..instance import Instance
from .cluster import OPT_IN, USER, Cluster, wait

#: How long a case without recovery is watched before it is called stuck; Slurm gives a dead node up after 39 s at most.
PATIENCE = 75.0
#: How long a case with recovery may take; the jobs themselves run for twenty seconds.
DEADLINE = 240.0
JOB_SECONDS = 20
#: Ranks of the Kubernetes Job, each on a node of its own.
GANG = 2
_INDEX = "batch.kubernetes.io/job-completion-index"
#: How a job ends that its broken node or step took with it.
_LOST = ("FAILED", "NODE_FAIL")

#: Each rank of a training job: it works, tells the others that it lives, and gives up when one of them falls silent, as
#: NCCL's watchdog does. A rank whose slurmstepd is gone hangs, as one does that lost its PMIx server in a collective.
RANK = """beats=$HOME/beats.$SLURM_JOB_ID.$SLURM_RESTART_COUNT
mkdir -p "$beats"
for second in $(seq "$1"); do
    sleep 1
    while [ "$(ps -o ppid= $$ | tr -d ' ')" = 1 ]; do sleep 1; done
    touch "$beats/$SLURM_PROCID"
    [ "$second" -gt 4 ] || continue
    for rank in $(seq 0 $((SLURM_NTASKS - 1))); do
        if [ -z "$(find "$beats/$rank" -newermt '-4 seconds' 2>/dev/null)" ]; then
            echo "watchdog: rank $rank is silent"
            exit 1
        fi
    done
done
"""
_BEGIN = """echo "run ${SLURM_RESTART_COUNT:=0} on $SLURM_JOB_NODELIST"
export SLURM_RESTART_COUNT
"""
PMIX_JOB = f"""{_BEGIN}
srun --mpi=pmix --kill-on-bad-exit=1 --wait=5 bash "$HOME/rank.sh" {JOB_SECONDS} || exit 1
echo finished
"""
REQUEUEING_JOB = f"""{_BEGIN}
if ! srun --mpi=pmix --kill-on-bad-exit=1 --wait=5 bash "$HOME/rank.sh" {JOB_SECONDS}; then
    echo "srun failed, requeueing"
    scontrol requeue "$SLURM_JOB_ID"
    sleep 30
    exit 1
fi
echo finished
"""


@dataclass
class Story:
    """What was seen, with seconds since the fault."""

    fault_at: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)
    finished: bool = False
    incidents_of: list[str] = field(default_factory=list)  # machines and jobs whose incidents belong to it
    job: int = 0  # Slurm's number, where it is a job of Slurm

    def broke(self, text: str) -> None:
        """Note the moment of the fault."""
        self.fault_at = time.time()
        self.tell(text)

    def tell_once(self, text: str) -> None:
        """Print what need not be said again in this story."""
        if text not in [told for _seconds, told in self.lines]:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print one observation, once."""
        if self.lines and self.lines[-1][1] == text:
            return
        seconds = time.time() - self.fault_at if self.fault_at else 0.0
        self.lines.append((seconds, text))
        print(f"  {seconds:7.1f} s  {text}", flush=True)


@dataclass(frozen=True)
class Case:
    """One case: `run` tells its story, and says in `finished` whether all ended well."""

    number: str
    title: str
    without: str
    run: Callable[[Cluster, float], Story]


def fault(instance: Instance, *arguments: str) -> None:
    """The lab's own command, as a person would type it."""
    argv = [str(instance.checkout / "lab" / "fault"), *arguments]
    command.run(argv, env={**os.environ, "LAB_INSTANCE": str(instance.number)}, timeout=120)


def power_loss(cluster: Cluster, patience: float) -> Story:
    """Two nodes lose power under a PMIx job and come back by themselves."""
    story = Story(incidents_of=["node1", "node2"])
    job = _start(cluster, story, PMIX_JOB, "node[1-2]", "power-loss")
    fault(cluster.instance, "power_cycle", "node1", "node2")
    story.broke("node1 and node2 lose power and come back")
    story.finished = _watch_job(cluster, story, job, "power-loss", patience)
    return story


def lost_step_daemon(cluster: Cluster, patience: float, script: str = REQUEUEING_JOB) -> Story:
    """slurmstepd of one of two nodes is killed; the script requeues its job when srun fails."""
    name = "lost-stepd"
    story = Story()
    job = _start(cluster, story, script, "node[1-2]", name)
    story.incidents_of = [str(job)]
    fault(cluster.instance, "kill_slurmstepd", "node2", "--job", str(job))
    story.broke("slurmstepd on node2 is killed")
    story.finished = _watch_job(cluster, story, job, name, patience)
    return story


def lost_step_daemon_reported(cluster: Cluster, patience: float) -> Story:
    """The same, and the script gives up instead of requeueing."""
    return lost_step_daemon(cluster, patience, PMIX_JOB)


def frozen_node(cluster: Cluster, patience: float) -> Story:
    """A node freezes: TCP connects, nothing answers."""
    story = Story()
    # the first two nodes are left to a case that may run beside it
    job = _start(cluster, story, PMIX_JOB, "", "frozen", options="--requeue -N1 --exclude=node[1-2]")
    node = cluster.job(job).nodes
    story.incidents_of = [node, str(job)]
    fault(cluster.instance, "freeze", node)
    story.broke(f"{node} freezes under job {job}")
    finished = _watch_job(cluster, story, job, "frozen", patience)
    story.finished = finished and _watch_node(cluster, story, node, patience)
    return story


def dead_slurmd(cluster: Cluster, patience: float) -> Story:
    """slurmd alone dies; the job should never notice."""
    story = Story(incidents_of=["node3"])
    script = PMIX_JOB.replace(f" {JOB_SECONDS} ", " 45 ")
    job = _start(cluster, story, script, "node3", "dead-slurmd", "-N1 --no-requeue")
    fault(cluster.instance, "kill_slurmd", "node3")
    story.broke("slurmd on node3 is killed")
    finished = _watch_job(cluster, story, job, "dead-slurmd", patience)
    story.finished = finished and _watch_node(cluster, story, "node3", patience)
    return story


def lost_kubernetes_node(cluster: Cluster, patience: float) -> Story:
    """One of the two nodes of a Kubernetes Job, a gang of two ranks, loses power and stays off."""
    story = Story()
    kube = Kubernetes(cluster)
    nodes = kube.start_gang("train")
    node = nodes[-1]
    story.incidents_of = [node, "default/train"]
    story.tell(f"Job train runs on {' and '.join(nodes)}")
    fault(cluster.instance, "power_off", node)
    story.broke(f"{node} loses power and stays off")
    deadline = time.monotonic() + patience
    done = False
    while time.monotonic() < deadline and not done:
        jobs, stuck, ready = kube.look(node)
        story.tell(f"Jobs: {jobs}; pods Terminating: {stuck}; {node} Ready: {ready}")
        done = "Complete" in jobs and not stuck and ready == "True" and cluster.node(node).in_service
        time.sleep(0.5)
    story.tell(f"ranks that finished: {kube.finished_ranks()}")
    story.finished = done and kube.finished_ranks() == list(range(GANG))
    return story


def persons_drain(cluster: Cluster, patience: float) -> Story:
    """A person drained a node, and then it freezes: it is the person's."""
    story = Story(incidents_of=["node4"])
    fault(cluster.instance, "drain_person", "node4")
    story.tell(f"node4 is drained by a person: {cluster.node('node4').reason}")
    before = cluster.node("node4").reason
    fault(cluster.instance, "freeze", "node4")
    story.broke("node4 freezes")
    wait(lambda: "not_responding" in cluster.node("node4").words, patience)
    story.tell(f"node4: {_words(cluster, 'node4')}")
    time.sleep(20)
    after = cluster.node("node4")
    story.tell(f"node4: {_words(cluster, 'node4')}, reason: {after.reason}")
    # slurmctld itself appends ` : Not responding` to a reason that is there
    story.finished = after.reason.startswith(before) and "not_responding" in after.words
    return story


CASES = (
    Case("1", "Two nodes lose power under a two-node PMIx job", "the nodes stay DOWN", power_loss),
    Case("2", "slurmstepd of a node dies, the script requeues its job", "the job cannot start again", lost_step_daemon),
    Case("2b", "The same, and the script gives up", "the job is lost", lost_step_daemon_reported),
    Case("3", "A node freezes under a job", "the node stays out of service", frozen_node),
    Case("4", "slurmd alone dies under a job", "the node goes DOWN and the job is killed", dead_slurmd),
    Case("5", "A Kubernetes gang loses a node", "the Job has failed, a pod of it never ends", lost_kubernetes_node),
    Case("6", "A node that a person drained freezes", "it is the person's, too", persons_drain),
)


class Kubernetes:
    """The lab's API server by kubectl."""

    def __init__(self, cluster: Cluster) -> None:
        self._kubectl = str(cluster.instance.checkout / "lab" / "kubectl")
        self._instance = cluster.instance

    def __call__(self, *arguments: str, stdin: str = "", timeout: float = 60) -> str:
        environment = {**os.environ, "LAB_INSTANCE": str(self._instance.number)}
        return command.run([self._kubectl, *arguments], stdin=stdin or None, env=environment, timeout=timeout).stdout

    def start_gang(self, name: str) -> list[str]:
        """Create an opted-in Indexed Job whose pods are never retried, wait until all run, and give their nodes.

        One of that name is deleted first: applied again, a Job that has ended stays as it is.
        """
        self("delete", "job", name, "--ignore-not-found")
        self("apply", "-f", "-", stdin=json.dumps(_gang_manifest(name)))
        self("wait", f"--for=jsonpath={{.status.ready}}={GANG}", f"job/{name}", "--timeout=150s", timeout=160)
        return self("get", "pods", "-l", f"job-name={name}", "-o", "jsonpath={.items[*].spec.nodeName}").split()

    def finished_ranks(self) -> list[int]:
        """The indexes of pods that succeeded, sorted, of Jobs that are complete: none of a run that was lost."""
        jobs = json.loads(self("get", "jobs", "-o", "json"))["items"]
        names = {job["metadata"]["name"] for job in jobs if "Complete" in _true_conditions(job)}
        pods = json.loads(self("get", "pods", "--field-selector=status.phase=Succeeded", "-o", "json"))["items"]
        labels = [pod["metadata"].get("labels", {}) for pod in pods]
        return sorted(int(each[_INDEX]) for each in labels if each.get("job-name") in names)

    def look(self, node: str) -> tuple[str, list[str], str]:
        """All Jobs with their conditions, pods that are Terminating, and the node's Ready condition."""
        jobs = json.loads(self("get", "jobs", "-o", "json"))["items"]
        told = [f"{job['metadata']['name']} {'/'.join(_true_conditions(job)) or 'active'}" for job in jobs]
        pods = json.loads(self("get", "pods", "-o", "json"))["items"]
        stuck = [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
        ready = self("get", "node", node, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")
        return ", ".join(told), stuck, ready.strip()

    def is_tidy(self) -> bool:
        """Whether no Job and no pod is left."""
        return not self("get", "jobs,pods", "-o", "name").strip()

    def tidy(self) -> None:
        """Delete every Job and pod of the demonstration."""
        self("delete", "jobs", "--all", "--wait=false")
        self("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")


#: What a case may leave in a node's spool, from within it.
_STALE = "stepd.slurm.pmix.* pmix.[0-9]* /tmp/spmix_appdir_*"
_CLEAN = f"""systemctl start slurmd
systemctl cat kubelet >/dev/null 2>&1 && systemctl start kubelet
pkill -9 -u alice
cd /var/spool/slurmd && rm -rf {_STALE}
"""


_IS_CLEAN = f"""systemctl is-active -q slurmd || exit 0
! systemctl cat kubelet >/dev/null 2>&1 || systemctl is-active -q kubelet || exit 0
! pgrep -u alice >/dev/null || exit 0
cd /var/spool/slurmd && ls -d {_STALE} >/dev/null 2>&1 || echo clean
"""


def _has_kubernetes(cluster: Cluster) -> bool:
    return pki.administrator_kubeconfig(cluster.instance).exists()


def is_tidy(cluster: Cluster) -> bool:
    """Whether nothing is left of any case, by one look at each host."""
    nodes = cluster.instance.nodes
    if _has_kubernetes(cluster) and not Kubernetes(cluster).is_tidy():
        return False
    if cluster.head("squeue -h -u alice -o %i; true"):
        return False
    states = [cluster.node(node) for node in nodes]
    if not all(state.in_service and not state.reason for state in states):
        return False
    try:
        with ThreadPoolExecutor() as pool:
            return all(text == "clean" for text in pool.map(lambda node: cluster.on(node, _IS_CLEAN, 10), nodes))
    except LabError:  # one that Slurm has not given up yet
        return False


def tidy(cluster: Cluster) -> None:
    """Undo whatever a case left: every node on, awake and in service, no job, no stale file, no orphan."""
    if is_tidy(cluster):
        return
    with progress.step("Tidying up"):
        cluster.head("scancel -u alice; true")
        for kind in ("power_on", "thaw", "restore_network"):  # a node that is off has no network to restore
            fault(cluster.instance, kind, *cluster.instance.nodes)
        wait(lambda: all(cluster.on(node, "echo ok") == "ok" for node in cluster.instance.nodes), 60)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: cluster.on(node, _CLEAN), cluster.instance.nodes))
        if _has_kubernetes(cluster):
            Kubernetes(cluster).tidy()
        wait(lambda: _resume_all(cluster), 90, interval=1.0)


def _resume_all(cluster: Cluster) -> bool:
    waiting = [node for node in cluster.instance.nodes if not cluster.node(node).in_service]
    if waiting:
        cluster.head(f"scontrol update nodename={','.join(waiting)} state=resume 2>/dev/null; true")
    return not waiting


def _start(cluster: Cluster, story: Story, script: str, nodes: str, name: str, options: str = "--requeue") -> int:
    cluster.write(f"/home/{USER}/rank.sh", RANK)
    job = cluster.submit(script, nodes, name, OPT_IN, options)
    if not wait(lambda: _step_runs(cluster, job), 120):
        state = cluster.job(job)
        raise LabError(f"Job {job} did not start: it is {state.state} ({state.reason})")
    story.job = job
    story.tell(f"job {job} ({name}) runs on {cluster.job(job).nodes}")
    time.sleep(1)  # PMIx has written its files by then
    return job


def _step_runs(cluster: Cluster, job: int) -> bool:
    return bool(cluster.head(f"squeue -h -s -j {job} -o %i | grep -F '{job}.0'; true"))


def _watch_job(cluster: Cluster, story: Story, job: int, name: str, patience: float) -> bool:
    """Follow a job until it finished, or can be called stuck; tells every change of it and of its nodes."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        state = cluster.job(job)
        reason = f" ({state.reason})" if state.state == "PENDING" else ""
        where = f" on {state.nodes}" if state.nodes else ""
        story.tell(f"job {job}: {state.state}{reason}, restarts {state.restarts}{where}")
        if cluster.impatient and state.state == "PENDING" and state.reason == "BeginTime":
            story.tell_once("(the demonstration skips the two minutes that Slurm holds a requeued job back)")
            cluster.head(f"scontrol update jobid={job} starttime=now")
        if state.state == "COMPLETED" and cluster.output(name, job).endswith("finished"):
            return True
        if cluster.impatient and state.state in _LOST:
            break  # nobody is there who would restart it
        time.sleep(0.3)
    for line in cluster.output(name, job).splitlines()[-4:]:
        story.tell(f"job {job} wrote: {line}")
    for node in cluster.instance.nodes:
        _tell_node(cluster, story, node, job)
    return False


def _tell_node(cluster: Cluster, story: Story, node: str, job: int) -> None:
    state = cluster.node(node)
    if not state.in_service:
        story.tell(f"{node}: {_words(cluster, node)}, reason: {state.reason}")
    try:
        stale, orphans = cluster.stale_files(node, job), cluster.processes(node, job)
    except LabError:
        return
    if stale or orphans:
        story.tell(f"{node}: left of job {job}: {len(stale)} PMIx files, {len(orphans)} processes")


def _watch_node(cluster: Cluster, story: Story, node: str, patience: float) -> bool:
    back = wait(lambda: cluster.node(node).in_service, patience)
    state = cluster.node(node)
    story.tell(f"{node}: {_words(cluster, node)}" + (f", reason: {state.reason}" if state.reason else ", no reason"))
    return bool(back) and not state.reason


def _words(cluster: Cluster, node: str) -> str:
    return "+".join(sorted(cluster.node(node).words))


def _job_manifest(name: str) -> dict:
    container = {"name": "main", "image": "head:5000/lab/busybox:1", "command": ["sleep", str(JOB_SECONDS)]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": {"mission-control/auto-resume": OPT_IN}},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"demo": name}},
                "spec": {
                    "restartPolicy": "Never",
                    "dnsPolicy": "Default",
                    "terminationGracePeriodSeconds": 5,
                    "imagePullSecrets": [{"name": "ngc"}],
                    "containers": [container],
                },
            },
        },
    }


def _true_conditions(job: dict) -> list[str]:
    return [item["type"] for item in job["status"].get("conditions", []) if item["status"] == "True"]


def _gang_manifest(name: str) -> dict:
    made = _job_manifest(name)
    made["spec"].update(completionMode="Indexed", completions=GANG, parallelism=GANG)
    apart = {"labelSelector": {"matchLabels": {"demo": name}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    made["spec"]["template"]["spec"]["affinity"] = affinity
    return made


@contextmanager
def broken(cluster: Cluster) -> Iterator[None]:
    """Tidy up behind a case, also when it raises."""
    try:
        yield
    finally:
        tidy(cluster)
