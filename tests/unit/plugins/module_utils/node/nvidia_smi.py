# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with NVIDIA GPUs for the helper: an nvidia-smi and a systemctl on PATH, and the driver's part of /proc.

nvidia-smi words its output and its exit codes as the real one does: the manual of driver 580 for the exit codes and the
rules of `--gpu-reset`, public reports for the texts (NVIDIA/NVSentinel issue 1690, NVIDIA/gpu-operator issue 118).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import cli

BOOT_ID = "11111111-2222-3333-4444-555555555555"

NVIDIA_SMI = """\
#!{python}
import json, re, sys, time
state = json.load(open({state!r}))
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(["nvidia-smi"] + words) + "\\n")
if state.get("hangs"):
    time.sleep(60)
if state.get("rc"):
    print(state["says"])
    sys.exit(state["rc"])
def option(name):
    return words[words.index(name) + 1] if name in words else ""
known = ["-q", "-x", "--gpu-reset", "-pm", "-i"]
values = [words[n + 1] for n, word in enumerate(words) if word in ("-i", "-pm")]
for word in words:
    if word not in known and word not in values:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
        sys.exit(2)
named = [re.sub("[.]0$", "", each).lower() for each in option("-i").split(",") if each]
gpus = state["gpus"]
if [each for each in named if each not in gpus]:
    print("No devices were found")
    sys.exit(6)
chosen = named or list(gpus)
lost = [each for each in chosen if gpus[each].get("lost")]
def full(device):
    return "0000" + device.upper() + ".0"
if lost and "--gpu-reset" not in words:
    print("Unable to determine the device handle for GPU0: " + full(lost[0]) + ": Unknown Error")
    sys.exit(255)
if "-q" in words and "-x" in words:
    if state.get("warns"):
        print(state["warns"])
    print('<?xml version="1.0" ?>\\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\\n<nvidia_smi_log>')
    print("<driver_version>580.95.05</driver_version><attached_gpus>%d</attached_gpus>" % len(gpus))
    for device in chosen:
        gpu = gpus[device]
        print('<gpu id="%s"><product_name>NVIDIA A800 80GB PCIe</product_name>' % full(device))
        print("<persistence_mode>%s</persistence_mode>" % ("Enabled" if gpu.get("persistence") else "Disabled"))
        if "recovery" in gpu:
            print("<gpu_recovery_action>%s</gpu_recovery_action>" % gpu["recovery"])
        print("<retired_pages><pending_blacklist>N/A</pending_blacklist></retired_pages>")
        print("<remapped_rows><remapped_row_pending>%s</remapped_row_pending>" % gpu.get("pending", "No"))
        print("<remapped_row_failure>%s</remapped_row_failure></remapped_rows></gpu>" % gpu.get("failure", "No"))
    print("</nvidia_smi_log>")
elif "-pm" in words:
    for device in chosen:
        gpus[device]["persistence"] = option("-pm") == "1"
    print("All done.")
elif "--gpu-reset" in words:
    used = [each for each in chosen if gpus[each].get("persistence") or gpus[each].get("used")]
    if used:
        print("The following GPUs could not be reset:")
        for each in used:
            print("  GPU %s: In use by another client" % full(each))
        print("\\n%d device is currently being used by one or more other processes (e.g. Fabric Manager, CUDA "
              "application, graphics application such as an X server, or a monitoring application such as another "
              "instance of nvidia-smi). Please first kill all processes using this device and all compute applications "
              "running in the system." % len(used))
        sys.exit(255)
    stuck = [each for each in chosen if gpus[each].get("stuck")]
    if stuck:
        print("The following GPUs could not be reset:\\n  GPU %s: Unknown Error" % full(stuck[0]))
        sys.exit(255)
    tied = [each for each in gpus if gpus[each].get("tied") and each not in chosen]
    if tied and [each for each in chosen if gpus[each].get("tied")]:
        print("GPU %s is connected by NVLink and must be reset in the same command" % full(tied[0]))
        sys.exit(255)
    for each in chosen:
        gpus[each].update(recovery="None", pending="No", lost=False, resets=gpus[each].get("resets", 0) + 1)
        print("GPU %s was successfully reset." % full(each))
    print("All done.")
json.dump(state, open({state!r}, "w"))
"""

SYSTEMCTL = """\
#!{python}
import json, sys
state = json.load(open({state!r}))
with open({log!r}, "a") as log:
    log.write(json.dumps(["systemctl"] + sys.argv[1:]) + "\\n")
verb, units = sys.argv[1], sys.argv[2:]
if verb == "is-active":
    told = [state["services"].get(unit, "inactive") for unit in units]
    print("\\n".join(told))
    sys.exit(0 if "active" in told else 3)
if verb in ("stop", "start"):
    for unit in units:
        if state.get("stubborn") == unit:
            sys.exit("Job for %s failed." % unit)
        state["services"][unit] = "active" if verb == "start" else "inactive"
        if verb == "stop" and unit == "nvidia-persistenced.service":
            for gpu in state["gpus"].values():
                gpu["persistence"] = False
    json.dump(state, open({state!r}, "w"))
elif verb != "reset-failed":
    sys.exit("unknown argument " + verb)
"""

LAUNCHER = """\
#!{python} -IS
import sys
sys.path.insert(0, {lib!r})
from job_recovery_node.cli import main
sys.exit(main(config_path={config!r}, proc={proc!r}, path={path!r}, state={kept!r}))
"""


class GpuNode:
    """The helper on a node with two GPUs, `0000:05:00` and `0000:06:00`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = {
            "gpu_clients": ["nvidia-persistenced.service", "nvidia-dcgm.service", "dcgm-exporter.service"]
        }
        self.services = {"nvidia-persistenced.service": "active", "nvidia-dcgm.service": "active"}
        self.gpus: dict[str, dict[str, Any]] = {"0000:05:00": {}, "0000:06:00": {}}
        self.more: dict[str, Any] = {}
        (folder / "bin").mkdir()
        shutil.copytree(
            Path(cli.__file__).parent, folder / "lib/job_recovery_node", ignore=shutil.ignore_patterns("__pycache__")
        )
        names = {"python": sys.executable, "state": str(folder / "state"), "log": str(folder / "log")}
        self.program("bin/nvidia-smi", NVIDIA_SMI.format(**names))
        self.program("bin/systemctl", SYSTEMCTL.format(**names))
        paths = {"lib": "lib", "config": "node.json", "proc": "proc", "kept": "run"}
        places = {name: str(folder / path) for name, path in paths.items()}
        path = "%s:/usr/bin:/bin" % (folder / "bin")
        self.program("launcher", LAUNCHER.format(python=sys.executable, path=path, **places))
        self._make_proc()

    def program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def _make_proc(self) -> None:
        boot = self.folder / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text(BOOT_ID + "\n", encoding="ascii")
        for minor, device in enumerate(self.gpus):
            told = self.folder / "proc/driver/nvidia/gpus" / (device + ".0") / "information"
            told.parent.mkdir(parents=True)
            text = "Model: \t\t NVIDIA A800\nBus Location: \t %s.0\nDevice Minor: \t %d\n" % (device, minor)
            told.write_text(text, encoding="ascii")

    def opens(self, pid: int, path: str, name: str = "python3") -> None:
        """A process that has a device file open."""
        folder = self.folder / "proc" / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(path)
        (folder.parent / "comm").write_text(name + "\n", encoding="ascii")

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.folder / "proc" / str(pid))

    def save(self) -> None:
        state = {"gpus": self.gpus, "services": self.services, **self.more}
        (self.folder / "state").write_text(json.dumps(state), encoding="utf-8")
        (self.folder / "node.json").write_text(json.dumps(self.config), encoding="utf-8")

    def begin(self, line: str) -> subprocess.Popen:
        """The helper at work, as sshd starts it."""
        self.save()
        environment = {**os.environ, "LD_PRELOAD": "", "SSH_ORIGINAL_COMMAND": line}
        return subprocess.Popen(
            [str(self.folder / "launcher")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> dict[str, Any]:
        """Its answer; what it changed stands in `gpus` and `services`."""
        out, err = self.begin(line).communicate(timeout=60)
        assert err == ""
        state = json.loads((self.folder / "state").read_text(encoding="utf-8"))
        self.gpus, self.services = state["gpus"], state["services"]
        (answer,) = [json.loads(each) for each in out.splitlines() if each]
        return answer

    @property
    def called(self) -> list[list[str]]:
        """What was called of nvidia-smi and systemctl, without mere looks."""
        log = self.folder / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [call for call in map(json.loads, lines) if not {"-q", "is-active", "reset-failed"} & set(call)]
