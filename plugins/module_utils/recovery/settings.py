# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the recovery: one file, read anew by every run and by every look of a source.

The controller's role writes it (default `/etc/job-recovery/settings.yml`, mode 0640, no secrets in it: passwords and
keys are files that it names). A change takes effect with the next look or run; nothing is kept in memory.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Mapping, Optional, Sequence, get_args, get_origin, get_type_hints

try:
    import yaml
except ImportError:  # the pure parts are used without it
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable

DEFAULT_PATH = "/etc/job-recovery/settings.yml"
# Drain policies: until the jobs have ended, however long that takes; until `drain_timeout`; not at all for jobs that
# may be restarted, as DEADLINE for all others.
END, DEADLINE, NOW = DRAIN_POLICIES = ("end", "deadline", "now")
HELPER, SLURM = REBOOTERS = ("helper", "slurm")
OBSERVE = "observe"
ACT = "act"
REQUEUE = "requeue"
REPORT = "report"
_DNS_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_API = re.compile(r"(?:%s/[a-z][a-z0-9-]{0,62}|/)\Z" % _DNS_NAME)  # group and resource, both or none
_LABEL = re.compile(r"(?:(?:%s/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z" % _DNS_NAME)


@dataclass(frozen=True)
class Scope:
    """Where recovery may act. A list that is empty allows nothing of its kind; `nodes` narrows the partitions."""

    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class SlurmSettings:
    """How to reach Slurm. `timeout` in seconds for each command."""

    enabled: bool = True
    bin_dir: str = ""
    timeout: float = 10.0
    interval: float = 1.0  # seconds between two looks at the nodes
    job_interval: float = 5.0  # seconds between two looks at the jobs
    probe_interval: float = 1.0  # seconds between two probes of nodes that run opted-in jobs; 0: none
    hang_after: float = 0.0  # seconds after which an opted-in job whose log does not grow is reported; 0: never
    completing_grace: float = 0.0  # seconds a job may stay COMPLETING; 0: as slurm.conf's own time-outs say


@dataclass(frozen=True)
class JobEnds:
    """What follows when a job that is looked after ends so, each `requeue` or `report`.

    CANCELLED is not among them: what a person ended stays ended. COMPLETED and PREEMPTED are no faults.
    """

    FAILED: str = REQUEUE
    NODE_FAIL: str = REQUEUE
    BOOT_FAIL: str = REQUEUE
    OUT_OF_MEMORY: str = REPORT
    TIMEOUT: str = REPORT
    DEADLINE: str = REPORT

    def of(self, state: str) -> str:
        """What follows this state; the empty text for one that is no fault."""
        return str(getattr(self, state)) if state in JOB_ENDS else ""


JOB_ENDS = tuple(item.name for item in fields(JobEnds))


@dataclass(frozen=True)
class NodeSign:
    """A condition or a taint by which others say that a Kubernetes node is sick, and what is done about it.

    Attributes:
        condition, status: the condition's type and the status that means sick.
        taint: the taint's key, in place of a condition; its value and effect do not matter.
        remediation: one of `SIGN_REMEDIATIONS`.
        grace: seconds that the condition must have lasted.
    """

    condition: str = ""
    status: str = "True"
    taint: str = ""
    remediation: str = REPORT
    grace: float = 0.0


SIGN_REMEDIATIONS = (REPORT, "quarantine_node", "reboot_node")


# What is done about a Job that has an owner and was ended by its infrastructure.
LEFT = "leave"  # nothing: its owner recovers by itself
WATCH = "watch"  # reported when nothing came of it in time
OWNER_CARES = (LEFT, WATCH, REPORT)


@dataclass(frozen=True)
class JobOwner:
    """One kind of owner of Kubernetes Jobs or pods; see `kubernetes.owners`.

    Attributes:
        kind: of the owner, as in an owner reference.
        care: one of `OWNER_CARES`.
        after: seconds that it has, where it is watched.
        group, resource: where its objects are read (`kubeflow.org`, `pytorchjobs`); empty: as the table says, or not.
        label: of its pods; the value is the owner's name.
    """

    kind: str = ""
    care: str = REPORT
    after: float = 300.0
    group: str = ""
    resource: str = ""
    label: str = ""


@dataclass(frozen=True)
class KubernetesSettings:
    """How to reach Kubernetes; disabled where `kubeconfig` is empty."""

    kubeconfig: str = ""
    timeout: float = 10.0
    node_grace: float = 0.0  # seconds a node may be not Ready before that is a fault
    eviction_timeout: float = 600.0  # seconds that the pods of a drained node may take
    unmanaged_pods: str = "refuse"  # or evict: pods that no controller makes again
    local_data: str = "evict"  # or refuse: pods with an emptyDir
    node_signs: tuple[NodeSign, ...] = ()  # the first that a node shows counts
    creating: str = REPORT  # of `SIGN_REMEDIATIONS`: for nodes that make no sandboxes for pods
    creating_grace: float = 300.0  # seconds that a pod may wait for its sandbox
    # taints by which other controllers say that a node is theirs; one with a slash at its end: all that begin so
    others_taints: tuple[str, ...] = (
        "medik8s.io/",  # self-node-remediation, fence-agents-remediation
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
    )
    owners: tuple[JobOwner, ...] = ()  # of Jobs; come before those of `kubernetes.owners`


@dataclass(frozen=True)
class LedgerSettings:
    """The database. The password is the only content of `password_file` (mode 0600)."""

    host: str = "127.0.0.1"
    port: int = 3306
    unix_socket: str = ""
    database: str = "job_recovery"
    user: str = "job_recovery"
    password_file: str = "/etc/job-recovery/ledger.password"  # noqa: S105 (a path)
    ca_file: str = ""
    timeout: float = 5.0


@dataclass(frozen=True)
class NodeSettings:
    """SSH to the node helper of every node."""

    ssh_user: str = "root"
    ssh_port: int = 22
    key_file: str = "/etc/job-recovery/ssh/id_ed25519"
    known_hosts_file: str = "/etc/job-recovery/ssh/known_hosts"
    connect_timeout: float = 3.0
    spool_dir: str = ""  # empty: as the running cluster's configuration says
    health_command: str = ""  # a path on the node that exits 0 when the node is fit; empty: none
    test_step: str = ""  # srun's --mpi in the test step that a node must pass before it goes back; empty: none
    reboot_by: str = HELPER  # who reboots a node that is alive: HELPER (over SSH), or SLURM (`scontrol reboot`)
    evidence_kib: int = 256  # of the kernel's log that are saved before a reboot; 0: nothing is
    job_log_kib: int = 512  # of an ended job's log that are read before it is requeued; 0: none
    evidence_incidents: int = 500  # whose evidence is kept, the newest


@dataclass(frozen=True)
class AgentSettings:
    """Where the agents of nodes bring their reports."""

    port: int = 0  # 0: nobody listens
    address: str = ""  # empty: all
    munge_socket: str = ""  # empty: munge's own
    silent_after: float = 900.0  # seconds after which people are told of an agent that is not heard; 0: never


@dataclass(frozen=True)
class PowerCommands:
    """The site's own power commands, for nodes whose power address is `site:NAME`; see `power.site_command`.

    Each command is a list of arguments, each pattern a regular expression for one line of what `status` prints;
    `{name}` stands for the node's name.
    """

    status: tuple[str, ...] = ()
    switch_on: tuple[str, ...] = ()
    switch_off: tuple[str, ...] = ()
    identify: tuple[str, ...] = ()  # prints the SMBIOS UUID that the power device itself tells
    on_pattern: str = ""
    off_pattern: str = ""


@dataclass(frozen=True)
class PowerSettings:
    """Redfish BMCs. `credentials_file` holds `user:password` (mode 0600)."""

    credentials_file: str = "/etc/job-recovery/bmc.credentials"
    ca_file: str = ""
    timeout: float = 10.0
    off_timeout: float = 60.0  # how long a ForceOff may take until the BMC says Off
    commands: PowerCommands = field(default_factory=PowerCommands)


@dataclass(frozen=True)
class Limits:
    """Gates' numbers; seconds unless said otherwise."""

    max_age: float = 120.0  # of the look that produced a fault
    silence: float = 60.0  # until a node counts as lost that does not answer and is not off; 0: Slurm says it
    reboot_window: float = 86400.0  # a node is rebooted once in it
    cooldown: float = 300.0  # between two incidents of one target
    max_parallel_reboots: int = 4
    boot_timeout: float = 1800.0
    crash_dump_time: float = 0.0  # that a silent node with power gets before it is switched off
    drain_policy: str = DEADLINE  # how long the jobs of a node that is alive are waited for: END, DEADLINE or NOW
    drain_timeout: float = 3600.0
    reboot_under_jobs: bool = False  # when drain_timeout is over and jobs still run on the node
    step_timeout: float = 300.0
    lease: float = 30.0
    default_attempts: int = 3  # of a job that does not say
    max_attempts: int = 10  # whatever a job says
    exclude_nodes: int = 0  # a job that failed on at most so many nodes is kept off them; 0: never
    blast_radius_percent: float = 10.0
    blast_radius_nodes: int = 10
    quarantine_counts: float = 86400.0  # how long a node that was left to a person counts as held
    common_cause_nodes: int = 4
    common_cause_window: float = 300.0
    breaker_failures: int = 3
    suspect_failures: int = 4  # jobs in a row that fail on one node until it is suspect; 0: no node ever is
    suspect_users: int = 3  # of so many different users
    suspect_window: float = 21600.0
    health_timeout: float = 60.0
    test_step_timeout: float = 10.0


KERNEL, JOB_LOG = LOKI_READS = ("kernel", "job")


@dataclass(frozen=True)
class LokiQuery:
    """One LogQL query for lines, and what reads them: the kernel logs of nodes (`kernel`), or those of jobs (`job`)."""

    name: str = ""
    query: str = ""
    reads: str = KERNEL


@dataclass(frozen=True)
class LokiLabels:
    """The labels that name what a line is about; of several the first that a stream has counts."""

    node: tuple[str, ...] = ("node_name", "node", "nodename", "hostname", "host")
    slurm_job: tuple[str, ...] = ("slurm_job_id",)
    namespace: tuple[str, ...] = ("namespace",)
    kubernetes_job: tuple[str, ...] = ("job_name",)
    container: tuple[str, ...] = ("pod", "container", "container_name", "filename")  # whose lines are no kernel's


@dataclass(frozen=True)
class LokiSettings:
    """Loki; not used where `url` is empty. `credentials_file` holds `user:password` (mode 0600)."""

    url: str = ""
    address: str = ""  # where to connect instead of looking the host up
    ca_file: str = ""
    credentials_file: str = ""
    tenant: str = ""
    timeout: float = 10.0
    ship: bool = True  # whether what happens is told to it
    watch: bool = False  # whether faults are looked for in it
    queries: tuple[LokiQuery, ...] = ()  # empty: those of `loki.queries`
    labels: LokiLabels = field(default_factory=LokiLabels)
    lateness: float = 120.0  # seconds that a line may come late


# What people may be told of an incident.
OPENED, RECOVERED, ESCALATED, ENDED = NOTICES = ("opened", "recovered", "escalated", "ended")


@dataclass(frozen=True)
class NotifySettings:
    """How people are told of incidents: by a site's own task file. Nobody is told where `tasks` is empty."""

    tasks: str = ""
    states: tuple[str, ...] = (ESCALATED,)  # of NOTICES
    timeout: float = 60.0  # of one run of the task file
    tries: int = 10  # with a longer pause after each


@dataclass(frozen=True)
class MetricsSettings:
    """Metrics for Prometheus, served by the reporter."""

    listen: str = ""  # ADDRESS:PORT; empty: nowhere


@dataclass(frozen=True)
class Settings:
    """Everything. `jobs` is `opt_in` or `all`; `mode` is `observe` or `act`."""

    cluster: str
    mode: str = OBSERVE
    jobs: str = "opt_in"
    job_ends: JobEnds = field(default_factory=JobEnds)
    stop_file: str = "/etc/job-recovery/STOP"
    state_dir: str = "/var/lib/job-recovery"
    scope: Scope = field(default_factory=Scope)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    nodes: NodeSettings = field(default_factory=NodeSettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    power: PowerSettings = field(default_factory=PowerSettings)
    limits: Limits = field(default_factory=Limits)
    loki: LokiSettings = field(default_factory=LokiSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)


def load(path: Optional[str] = None) -> Settings:
    """Read the settings of `path` (default: `$JOB_RECOVERY_SETTINGS`, else `DEFAULT_PATH`).

    Raises:
        Unreadable: the file cannot be read or is no YAML.
        BadInput: an unknown or ill-typed setting, an empty scope.
    """
    path = path or os.environ.get("JOB_RECOVERY_SETTINGS") or DEFAULT_PATH
    if yaml is None:
        raise Unreadable("settings %s: the Python library PyYAML is missing" % path, "install it for this Python")
    try:
        with open(path, encoding="utf-8") as handle:
            data = yaml_text.loads(handle)
    except OSError as exc:
        raise Unreadable("settings %s: %s" % (path, exc.strerror), "run site.yml, or give the right path") from exc
    except ValueError as exc:
        raise Unreadable("settings %s: no YAML (%s)" % (path, exc.__cause__ or exc)) from exc
    return parse(data)


def parse(data: Any) -> Settings:
    """Make settings of plain data (mappings, lists, numbers, text).

    Raises:
        BadInput: an unknown or ill-typed setting, an empty scope.
    """
    if not isinstance(data, Mapping) or "cluster" not in data:
        raise BadInput("settings: `cluster` is missing", "say which cluster this is")
    settings = _build(Settings, data, "")
    _one_of("mode", settings.mode, (OBSERVE, ACT))
    _one_of("jobs", settings.jobs, ("opt_in", "all"))
    _one_of("nodes.reboot_by", settings.nodes.reboot_by, REBOOTERS)
    _one_of("limits.drain_policy", settings.limits.drain_policy, DRAIN_POLICIES)
    for state in JOB_ENDS:
        _one_of("job_ends.%s" % state, settings.job_ends.of(state), (REQUEUE, REPORT))
    _check_kubernetes(settings.kubernetes)
    _check_loki(settings.loki)
    for state in settings.notify.states:
        _one_of("notify.states", state, NOTICES)
    if settings.agents.port > 65535:
        raise BadInput("settings: agents.port is %d" % settings.agents.port, "use a number up to 65535")
    if settings.slurm.enabled and not settings.scope.partitions:
        raise BadInput("settings: scope.partitions is empty", "name the Slurm partitions that recovery may act on")
    if settings.kubernetes.kubeconfig and not settings.scope.namespaces:
        raise BadInput("settings: scope.namespaces is empty", "name the namespaces that recovery may act on")
    return settings


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise BadInput("settings: %s is %r" % (name, value), "use %s" % " or ".join(allowed))


def _check_kubernetes(chosen: KubernetesSettings) -> None:
    for name in ("unmanaged_pods", "local_data"):
        _one_of("kubernetes.%s" % name, getattr(chosen, name), ("refuse", "evict"))
    _one_of("kubernetes.creating", chosen.creating, SIGN_REMEDIATIONS)
    for sign in chosen.node_signs:
        _check_sign(sign)
    for row in chosen.owners:
        if not row.kind or row.care not in OWNER_CARES:
            raise BadInput(
                "settings: kubernetes.owners: %r is %r" % (row.kind, row.care),
                "name a kind, and one of %s" % ", ".join(OWNER_CARES),
            )
        if not _API.match("%s/%s" % (row.group, row.resource)):
            raise BadInput(
                "settings: kubernetes.owners: %r is in %r, %r" % (row.kind, row.group, row.resource),
                "give both the API group and the name of the resource in it, or none",
            )
        if not _LABEL.match(row.label):
            raise BadInput("settings: kubernetes.owners: %r is no label" % row.label, "give the key alone")


def _check_loki(chosen: LokiSettings) -> None:
    names = [row.name for row in chosen.queries]
    if len(set(names)) != len(names):
        raise BadInput("settings: loki.queries: two have the same name")
    for row in chosen.queries:
        if not row.name.isidentifier() or not row.query:
            raise BadInput("settings: loki.queries: %r" % row.name, "give a name of letters and digits, and a query")
        _one_of("loki.queries: reads of %s" % row.name, row.reads, LOKI_READS)


def _check_sign(sign: NodeSign) -> None:
    name = sign.condition or sign.taint
    if bool(sign.condition) is bool(sign.taint) or (sign.taint and sign.grace):
        raise BadInput("settings: kubernetes.node_signs: name a condition (with a grace), or a taint (without one)")
    _one_of("kubernetes.node_signs: remediation of %s" % name, sign.remediation, SIGN_REMEDIATIONS)
    if sign.condition == "Ready":
        raise BadInput("settings: kubernetes.node_signs: Ready is looked at anyway, with node_grace")


def _build(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise BadInput("settings: %s is no mapping" % (where or "the file"))
    hints = get_type_hints(cls)
    unknown = sorted(str(key) for key in set(data) - {item.name for item in fields(cls)})
    if unknown:
        raise BadInput("settings: unknown %s" % ", ".join(where + key for key in unknown), "remove or correct it")
    return cls(**{key: _value(hints[key], value, where + key) for key, value in data.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if is_dataclass(hint):
        return _build(hint, value, where + ".")
    if get_origin(hint) is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_item(get_args(hint)[0], item, where) for item in value)
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return float(value)
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    elif isinstance(value, hint):
        return value
    raise BadInput("settings: %s is %r" % (where, value), "give %s" % getattr(hint, "__name__", "a list of names"))


def _item(hint: Any, value: Any, where: str) -> Any:
    if value == "":
        raise BadInput("settings: %s has an empty name" % where)
    return _value(hint, value, where)
