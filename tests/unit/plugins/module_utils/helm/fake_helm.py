# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A helm for what a real one does not do on demand: it plays a script, and writes down how it was called.

A real helm, against a real API server and registry, is used in tests/lab. This one refuses what helm does not know.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys

_PROGRAM = r"""#!%(python)s
import json, os, pathlib, signal, sys, time, urllib.request
folder = pathlib.Path(%(folder)r)
VALUED = {"--namespace", "--timeout", "--kubeconfig", "--kube-context", "--values", "--description", "--labels",
          "--template", "--registry-config", "--destination", "--version", "--ca-file", "--keyring", "--username"}
FLAGS = {"--install", "--reset-values", "--create-namespace", "--take-ownership", "--force-conflicts", "--wait",
         "--ignore-not-found", "--plain-http", "--verify", "--password-stdin"}
VERBS = {"version", "upgrade", "uninstall", "pull", "verify", "repo"}
args, options, words = sys.argv[1:], {}, []
while args:
    word = args.pop(0)
    if word in VALUED:
        options[word] = args.pop(0)
    elif word in FLAGS:
        options[word] = True
    elif word.startswith("-"):
        sys.exit("Error: unknown flag: " + word)
    else:
        words.append(word)
if words[0] not in VERBS:
    sys.exit("Error: unknown command " + words[0])
login = pathlib.Path(options.get("--registry-config", "/nowhere"))
call = {"argv": sys.argv[1:], "words": words, "options": options, "stdin": sys.stdin.read(),
        "config": os.environ["HELM_CONFIG_HOME"], "pid": os.getpid(),
        "login": login.read_text() if login.is_file() else "", "mode": oct(os.stat(os.path.dirname(
            os.environ["HELM_CONFIG_HOME"])).st_mode & 0o777)}
with open(folder / "calls", "a") as log:
    log.write(json.dumps(call) + "\n")
script = json.loads((folder / "script").read_text())
step = script.get(words[0], [{}]).pop(0)
(folder / "script").write_text(json.dumps(script))
if step.get("trap"):
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(step["trap"])))
for path, thing in step.get("post", []):
    kind = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(path, json.dumps(thing).encode(), kind))
time.sleep(step.get("sleep", 0))
if words[0] == "pull":
    for name, data in step.get("files", {}).items():
        pathlib.Path(options["--destination"], name).write_bytes(bytes.fromhex(data))
sys.stdout.write(step.get("stdout", ""))
sys.stderr.write(step.get("stderr", ""))
sys.exit(step.get("rc", 0))
"""


class FakeHelm:
    """An executable in `folder`.

    Attributes:
        path: what to run.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.path = str(folder / "helm")
        pathlib.Path(self.path).write_text(_PROGRAM % {"python": sys.executable, "folder": str(folder)})
        os.chmod(self.path, 0o755)
        self.plays()

    def plays(self, **steps: list[dict]) -> None:
        """What each verb does, call by call: rc, stdout, stderr, sleep, post [(url, object)], files {name: hex}."""
        (self._folder / "script").write_text(json.dumps(steps))

    @property
    def calls(self) -> list[dict]:
        """How it was called."""
        log = self._folder / "calls"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
