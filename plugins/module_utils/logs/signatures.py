# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which words the lines of a job's log are known, and whose fault each of them tells: data.

A line belongs to the first row that knows it, so the special rows stand before the general ones. A job's log is written
by its user: no row takes a node out of service, however certain it sounds. Only the node's own kernel log can.

Sources: the errors of CUDA's runtime and driver API (docs.nvidia.com/cuda), NCCL's `src/misc/socket.cc` and
`src/transport/net_ib`, the completion statuses of libibverbs (`enum ibv_wc_status`), PyTorch's `ProcessGroupNCCL.cpp`
and `elastic/multiprocessing`, Slurm's `src/slurmd/slurmstepd` and `src/srun`, Open MPI, UCX and PMIx; as of 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .model import APPLICATION, HARDWARE, IGNORE, PLATFORM, REPORT, RESTART_APP, UNKNOWN


class Weight(IntEnum):
    """How much a fault says about why the job ended: the smallest decides, of equal ones the earliest in the log."""

    PROVED = 0  # the GPU or the adapter itself says that it is broken
    SCHEDULER = 1  # Slurm says why it ended the job
    CAUSE = 2  # a known cause
    GENERAL = 3  # the application ended itself, for whatever reason
    OPEN = 4  # something went wrong, and several things can be behind it
    FOLLOWS = 5  # seen where another process failed first


@dataclass(frozen=True)
class Signature:
    """One fault and its words.

    Attributes:
        code, family, verdict, action: as in `model.Finding`.
        words: any of these, in lower case; parts between ` + ` must all be in the line.
        weight: what it says about the end of the job.
        by_hardware: broken hardware can look like this, too; then the node's kernel log decides.
    """

    code: str
    family: str
    verdict: str
    action: str
    words: tuple[str, ...]
    weight: Weight = Weight.CAUSE
    by_hardware: bool = False


def _cause(family: str, code: str, verdict: str, *words: str) -> Signature:
    return Signature(code, family, verdict, REPORT, words)


def _crash(family: str, code: str, *words: str) -> Signature:
    return Signature(code, family, APPLICATION, RESTART_APP, words, by_hardware=True)


def _general(family: str, code: str, *words: str) -> Signature:
    return Signature(code, family, APPLICATION, REPORT, words, Weight.GENERAL)


def _open(family: str, code: str, *words: str) -> Signature:
    return Signature(code, family, UNKNOWN, REPORT, words, Weight.OPEN, by_hardware=True)


def _follows(family: str, code: str, *words: str) -> Signature:
    return Signature(code, family, UNKNOWN, IGNORE, words, Weight.FOLLOWS)


def _proved(family: str, code: str, *words: str) -> Signature:
    return Signature(code, family, HARDWARE, REPORT, words, Weight.PROVED, by_hardware=True)


def _scheduler(code: str, verdict: str, action: str, *words: str) -> Signature:
    return Signature(code, "slurm", verdict, action, words, Weight.SCHEDULER)


# What Slurm and its steps say themselves.
_SLURM = (
    _scheduler("node_fail", PLATFORM, REPORT, "cancelled at + due to node fail", "error: node failure on"),
    _scheduler("preempted", PLATFORM, IGNORE, "cancelled at + due to preemption"),
    _scheduler("requeued", UNKNOWN, IGNORE, "cancelled at + due to job requeue"),
    Signature("time_limit", "slurm", APPLICATION, REPORT, ("cancelled at + due to time limit",), Weight.OPEN),
    Signature("cancelled", "slurm", UNKNOWN, IGNORE, ("*** job + cancelled at",), Weight.OPEN),
    _follows("slurm", "step_cancelled", "*** step + cancelled at", "job step aborted", "terminating stepid",
             "terminating job step", "force terminated job", "failed to send message_task_exit"),
    _cause("memory", "oom_kill", APPLICATION, "oom_kill event", "oom-kill event", "exceeded memory limit",
           "exceeded job memory limit", "exceeded step memory limit", "srun: error + out of memory", "oomkilled"),
    _cause("slurm", "kill_task_failed", PLATFORM, "slurmstepd: error + kill task failed", "not ending with signals"),
    _cause("slurm", "prolog_failed", PLATFORM, "prolog failed", "prolog error", "task_prolog can not be executed",
           "could not run slurm task_prolog"),
    _cause("slurm", "credential", PLATFORM, "invalid job credential", "error generating job credential",
           "munge decode failed", "munge encode failed", "protocol authentication error"),
    _cause("slurm", "pmix_left_over", PLATFORM, "cannot bind() unix socket + already in use", "pmix + file exists"),
    _cause("slurm", "pmix_send", PLATFORM, "pmixp + send failed", "pmixp + exceeded the retry limit",
           "cannot send message to + stepd.slurm.pmix", "pmixp + find address for host"),
    _cause("slurm", "slurmctld_away", PLATFORM, "unable to contact slurm controller", "zero bytes were transmitted"),
    _cause("slurm", "launch_timeout", PLATFORM, "task launch for + socket timed out",
           "launch failed: socket timed out", "slurm_receive_msgs + socket timed out"),
    _cause("slurm", "not_executable", APPLICATION, "slurmstepd: error: execve()", "srun: error: execve",
           "slurm_script: line + command not found", "slurm_script: line + permission denied"),
    _cause("slurm", "request", APPLICATION, "unable to create step for job + requested node configuration",
           "unable to create step for job + more processors requested", "requested time limit is invalid",
           "unable to allocate resources"),
    _open("slurm", "container", "pyxis: container start failed", "pyxis: couldn't start container",
          "pyxis: failed to import", "pyxis: failed to create container"),
    _open("slurm", "launch", "launch failed: ", "error: couldn't chdir to", "plugin stack initialization failed",
          "failed to invoke spank plugin stack"),
    _follows("slurm", "step_ended", "aborted before step completely launched", "srun: error + exited with exit code 1",
             "srun: error + terminated"),
)

# The GPU and CUDA.
_CUDA = (
    _proved("cuda", "cuda_ecc", "uncorrectable ecc error", "cudaerroreccuncorrectable",
            "cuda_error_ecc_uncorrectable"),
    _proved("cuda", "cuda_nvlink", "uncorrectable nvlink error", "nvlink_uncorrectable",
            "cudaerrornvlinkuncorrectable"),
    _proved("cuda", "gpu_lost", "gpu has fallen off the bus", "unable to determine the device handle for gpu",
            "gpu is lost"),
    _open("cuda", "cuda_contained", "access of peer gpu memory over nvlink or a hardware error",
          "cuda_error_contained", "cudaerrorcontained"),
    _cause("cuda", "cuda_not_ready", PLATFORM, "cuda + system not yet initialized", "error 802: system not yet",
           "cudaerrorsystemnotready", "cuda_error_system_not_ready", "gpu_burn + system not yet initialized"),
    _cause("cuda", "cuda_driver", PLATFORM, "cuda driver version is insufficient",
           "forward compatibility was attempted",
           "driver/library version mismatch", "nvidia driver on your system is too old", "system_driver_mismatch",
           "couldn't communicate with the nvidia driver", "libcuda.so + error while loading shared"),
    _cause("cuda", "cuda_mps", PLATFORM, "mps client failed to connect", "cuda_error_mps_", "mps server is not ready",
           "cudaerrormps"),
    _cause("cuda", "cuda_oom", APPLICATION, "cuda out of memory", "cuda error: out of memory",
           "cuda error 2: out of memory", "cuda_error_out_of_memory", "cudaerrormemoryallocation",
           "outofmemoryerror:", "cuda failure + out of memory", "cuda runtime error (2)", "resource_exhausted: out of",
           "resourceexhaustederror: oom", "cudamalloc failed: out of memory", "cublas_status_alloc_failed",
           "cudnn_status_alloc_failed"),
    _cause("cuda", "cuda_assert", APPLICATION, "device-side assert", "cuda_error_assert", "cudaerrorassert",
           ".cu: + assertion ` + failed", "thread: [ + assertion ` + failed"),
    _crash("cuda", "cuda_illegal_address", "illegal memory access", "cuda_error_illegal_address",
           "cudaerrorillegaladdress", "warp illegal address"),
    _crash("cuda", "cuda_misaligned", "cuda + misaligned address", "cuda_error_misaligned_address"),
    _crash("cuda", "cuda_illegal_instruction", "illegal instruction was encountered",
           "cuda_error_illegal_instruction", "cuda + invalid program counter", "cuda_error_invalid_pc",
           "operation not supported on global/shared address space"),
    _cause("cuda", "cuda_no_kernel", APPLICATION, "no kernel image is available", "cuda + invalid device function",
           "cuda_error_no_binary_for_gpu", "ptx was compiled with an unsupported toolchain",
           "unsupported_ptx_version", "cublas_status_arch_mismatch", "cudnn_status_arch_mismatch"),
    _cause("cuda", "cuda_device_number", APPLICATION, "cuda + invalid device ordinal", "cuda_error_invalid_device",
           "duplicate gpu detected"),
    _cause("cuda", "cuda_use", APPLICATION, "cuda + invalid configuration argument", "cuda + too many resources",
           "cannot re-initialize cuda in forked subprocess", "cuda error: invalid argument",
           "cublas_status_invalid_value", "cudnn_status_bad_param", "cudnn_status_not_supported",
           "cuda + stream is capturing", "cuda error: invalid resource handle", "cusparse_status_invalid_value"),
    _open("cuda", "cuda_launch", "unspecified launch failure", "cuda_error_launch_failed", "cudaerrorlaunchfailure",
          "cuda runtime error (4)", "cuda + launch timed out", "cuda_error_launch_timeout"),
    _open("cuda", "cuda_no_device", "no cuda-capable device", "no cuda gpus are available", "cuda_error_no_device",
          "cuda-capable device(s) is/are busy", "cuda-capable devices are busy", "cuda_error_device_unavailable",
          "found no nvidia driver"),
    _open("cuda", "cuda_library", "cudnn_status_", "cublas_status_", "cusolver_status_", "cusparse_status_",
          "cufft_exec_failed", "cufft_internal_error", "nvml_error", "cublas runtime error"),
    _open("cuda", "cuda_unknown", "cuda unknown error", "cuda error: unknown error", "cuda_error_unknown",
          "cudaerrorunknown", "cuda error: initialization", "cuda failure", "cuda_error_not_initialized",
          "unhandled cuda error", "cuda_error_external_device"),
)

# NCCL and the network under it.
_NETWORK = (
    _proved("network", "ib_device", "got async event + local catastrophic error", "async fatal event + catastrophic"),
    _cause("network", "ib_link", PLATFORM, "got async event + port error", "got async event + port down"),
    # IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR: the other side does not answer; IBV_WC_WR_FLUSH_ERR follows.
    _follows("network", "ib_flushed", "got completion from peer + status=5 ", "got completion from peer + error 5,",
             "work request flushed error"),
    _cause("network", "ib_retry", PLATFORM, "got completion from peer + status=12 ",
           "got completion from peer + status=13 ", "got completion from peer + error 12,",
           "got completion from peer + error 13,", "transport retry count exceeded",
           "receiver-not-ready retry count exceeded", "retry counter exceeded"),
    _cause("network", "ib_completion", PLATFORM, "got completion from peer", "net/ib + async fatal event",
           "got async event + access violation", "uct_ib + completion with error", "local qp operation + mlx5",
           "remote access error on mlx5", "local protection + mlx5", "remote operation error on mlx5"),
    _cause("network", "ib_verbs", PLATFORM, "nccl warn call to ibv_", "ibv_reg_mr + cannot allocate memory",
           "failed to register + mlx5", "ibv_create_qp + failed"),
    _cause("nccl", "nccl_mismatch", APPLICATION, "mismatched collective", "mismatch between collectives",
           "ncclinvalidusage", "ncclinvalidargument", "nccl + version mismatch"),
    _cause("storage", "shm_full", PLATFORM, "dev/shm + no space left", "failed to extend /dev/shm",
           "while creating shared memory segment", "insufficient shared memory", "out of shared memory",
           "shared memory + not enough space", "shared memory + bus error"),
    _open("nccl", "nccl_timeout", "watchdog caught collective operation timeout", "timeout at nccl work",
          "detected by watchdog at work"),
    _open("nccl", "nccl_stuck", "watchdog got stuck for", "heartbeat monitor timed out", "monitoredbarrier",
          "timed out waiting + for recv operation", "timed out waiting + for send operation"),
    _follows("nccl", "nccl_desync", "but didn't join collective", "joined but didn't finish"),
    _follows("nccl", "nccl_aborted", "nccl operations have failed or timed out",
             "we are taking the entire process down", "nccl communicator was aborted",
             "received a dump signal", "watchdog thread terminated with exception"),
    _cause("network", "net_unreachable", PLATFORM, "no route to host", "network is unreachable",
           "host is unreachable", "lost communication with a remote daemon",
           "daemon has unexpectedly failed after launch"),
    _cause("network", "net_name", PLATFORM, "failure in name resolution", "name or service not known",
           "could not resolve host", "getaddrinfo failed"),
    _open("network", "net_timeout", "connection timed out", "client socket has timed out", "rendezvoustimeouterror",
          "rendezvousconnectionerror", "connection to the c10d store has failed", "connect() timed out",
          "task + heartbeat timeout", "deadline_exceeded", "endpoint timeout", "barrier timed out"),
    _follows("network", "net_peer", "connection reset by peer", "connection closed by + peer", "broken pipe",
             "ncclremoteerror", "remote process exited or there was a network error", "connection refused",
             "software caused connection abort", "socket recv failed", "nccl warn proxy call",
             "nccl warn [proxy service", "rendezvousclosederror", "pmix error: unreachable",
             "communicator encountered a fatal error", "connectionreseterror", "diststoreerror"),
    _open("nccl", "nccl_system", "ncclsystemerror", "unhandled system error", "ncclinternalerror",
          "internal error - please report", "ncclunhandledcudaerror", "pmix error:", "nccl error", "nccl failure"),
    _cause("network", "port_taken", APPLICATION, "address already in use", "eaddrinuse"),
)

# Files and memory of the node.
_NODE = (
    _cause("storage", "fs_quota", APPLICATION, "quota exceeded", "errno 122]"),
    _cause("storage", "fs_full", PLATFORM, "no space left on device", "errno 28]", "storagefull"),
    _cause("storage", "fs_stale", PLATFORM, "stale file handle", "stale nfs file handle", "errno 116]"),
    _cause("storage", "fs_read_only", PLATFORM, "read-only file system", "errno 30]"),
    _cause("storage", "fs_gone", PLATFORM, "transport endpoint is not connected", "transport endpoint shutdown",
           "errno 107]", "errno 108]", "no locks available", "errno 37]", "remote i/o error", "errno 121]"),
    _cause("storage", "fs_io", PLATFORM, "input/output error", "errno 5]"),
    _cause("memory", "host_oom", APPLICATION, "cannot allocate memory", "memoryerror", "std::bad_alloc", "errno 12]",
           "can't allocate memory", "out of memory: killed", "java.lang.outofmemory"),
    _cause("storage", "open_files", APPLICATION, "too many open files", "errno 24]"),
)

# How processes end.
_PROCESS = (
    _crash("process", "segfault", "segmentation fault", "sigsegv", "exitcode: -11", "exitcode : -11", "signal 11",
           "signal: 11", "exit code: 139", "exit code 139"),
    _open("process", "bus_error", "bus error", "sigbus", "exitcode: -7)", "exitcode : -7 ", "signal 7 ", "signal: 7 ",
          "exit code: 135"),
    _crash("process", "heap_corruption", "double free or corruption", "malloc(): ", "free(): invalid",
           "corrupted size vs. prev_size", "munmap_chunk(): invalid pointer", "stack smashing detected",
           "corrupted double-linked list"),
    _crash("process", "illegal_instruction", "illegal instruction", "sigill", "exitcode: -4)", "exit code: 132"),
    _cause("process", "float_exception", APPLICATION, "floating point exception", "sigfpe", "exitcode: -8)"),
    _follows("process", "terminated", "signalexception", "got signal: 15", "sigterm", "signal 15", "exitcode: -15",
             "closing signal"),
    _open("process", "killed", "sigkill", "exitcode: -9", "exitcode : -9", "signal 9", "signal: 9", "signal: killed",
          " killed ", "killed by signal", "exit code: 137", "exit code 137", ": killed"),
    _general("process", "mpi_abort", "mpi_abort was invoked", "application called mpi_abort", "mpi_err_"),
    # what C++ does about an exception that nobody caught: what was told before says more
    Signature("abort", "process", APPLICATION, REPORT,
              ("sigabrt", "aborted (core dumped)", "exitcode: -6)", "exitcode : -6 ", "terminate called", "signal 6 ",
               "fatal python error", "signal: aborted"), Weight.OPEN),
    _follows("process", "child_failed", "childfailederror", "exited unexpectedly", "eoferror", "keyboardinterrupt",
             "primary job terminated normally", "non-zero exit code", "brokenprocesspool", "workercrashederror",
             "bad termination of one of", "rayactorerror", "actordiederror", "distbackenderror"),
)

SIGNATURES: tuple[Signature, ...] = _SLURM + _CUDA + _NETWORK + _NODE + _PROCESS

# The last line of a Python traceback that no row knows.
PYTHON_ERROR = _general("process", "python_error")
# The rank that the others waited for.
RANK_BEHIND = _open("nccl", "rank_behind")

BY_CODE: dict[str, Signature] = {row.code: row for row in (*SIGNATURES, PYTHON_ERROR, RANK_BEHIND)}

# Every row's words hold one of these, so that most lines of a log cost a few searches only.
MARKS = (
    "error", "fail", "sig", "kill", "memory", "cuda", "nccl", "timed out", "timeout", "abort", "cancelled at", "peer",
    "exit", "fault", "illegal", "invalid", "assert", "terminat", "exceed", "pyxis", "pmix", "prolog", "unreachable",
    "route to", "no space", "stale", "read-only", "refused", "driver", "gpu", "_status_", "mismatch", "endpoint",
    "barrier", "watchdog", "joined but", "join collective", "corrupt", "mpi_", "resolve host", "locks", "smash",
    "slurm", "image", "mlx5", "in use", "not known", "bad_alloc", "storagefull", "compat", "interrupt", "address",
    "lost", "errno", "broken", "too many", "zero bytes", "unable", "nvlink", "mps ", "exhausted", "ptx", "async",
    "entire process", "eaddrinuse", "malloc", "exception",
)

# A line that holds one of these tells of something that is tried again, or is no error yet.
MILD = ("retrying", "will retry", "retry loop", "warning:", "futurewarning", "userwarning")
