# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dashboards and alerts: they are what the generator makes, every query in them is one, and asks for what is there.

PromQL and alerts are judged by Prometheus' own promtool, LogQL by the grammar of Grafana's editor.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import lines
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.metrics import (
    Known,
    Standing,
    exposition,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.totals import Totals
from ansible_collections.mission_control.job_recovery.tools.monitoring.dashboards import files
from grafana_foundation_sdk.models.dashboard import Dashboard

from .prometheus import promtool

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "job-recovery-monitoring"
BOARDS = {path.name: json.loads(path.read_text()) for path in sorted((CHART / "files" / "dashboards").glob("*.json"))}
ALERTS = CHART / "files" / "alerts.yaml"
# What Grafana puts in the place of its variables.
GRAFANA = {"$__range": "1h", "$__rate_interval": "5m", "$cluster": "lab|other", "$incident": ".+", "$node": "node[1-9]"}
LINE_KEYS = {"at", "kind", "incident", "target_kind", "target", "machine", "scheduler", "fault_kind", "remediation"} | {
    *("step", "status", "gate", "why", "seconds", "id")
}
STANDING = Standing(
    False, False, {}, {}, {kind: {"failures": 0, "broken": False} for kind in ("node", "job")},
    {"sent_at": 1.0, "way": 1.0}, {"loki": 0},
)  # fmt: skip
METRICS = exposition(Known("lab", "act", STANDING, 1.0, Totals(), [{"name": "ledger", "at": 1.0, "error": None}], []))


def queries(kind: str) -> list[str]:
    """Every query of the dashboards to this kind of data source, as Grafana sends it."""
    found = [
        target["expr"]
        for board in BOARDS.values()
        for panel in board["panels"]
        for target in panel.get("targets", [])
        if target["datasource"]["type"] == kind
    ]
    for name, value in GRAFANA.items():
        found = [query.replace(name, value) for query in found]
    return found


def logql(asked: list[str]) -> list[Any]:
    """Of each query where it is no LogQL, None where it is."""
    done = subprocess.run(
        [str(ROOT / "tools" / "logql")], input=json.dumps(asked), capture_output=True, text=True, timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def promql(asked: list[str], folder: Path) -> tuple[int, str]:
    rules = [{"record": "checked:number%d" % number, "expr": query} for number, query in enumerate(asked)]
    path = folder / "queries.yaml"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    return promtool("check", "rules", str(path))


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_the_files_are_what_the_generator_makes() -> None:
    """`make dashboards` writes them."""
    folder = CHART / "files" / "dashboards"
    assert {path.name: path.read_text() for path in folder.iterdir()} == files()


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_has_nothing_that_grafanas_schema_does_not_know(name: str) -> None:
    """The library's classes are made from the schema: what they do not know does not come back."""
    read = json.loads(json.dumps(Dashboard.from_json(BOARDS[name]).to_json(), default=lambda part: part.to_json()))
    assert read == BOARDS[name]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_numbers_and_places_of_their_own(name: str) -> None:
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, dummy in places) < 24
    assert name == BOARDS[name]["uid"] + ".json"


def test_variables_that_are_used_are_there() -> None:
    for board in BOARDS.values():
        variables = {each["name"] for each in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board["panels"])))
        assert used <= variables


def test_every_logql_query_is_one() -> None:
    asked = queries("loki")
    assert len(asked) > 8
    assert dict(zip(asked, logql(asked))) == dict.fromkeys(asked)


@pytest.mark.parametrize("query", ['{job="a"} | jsonn', "{job=a}", 'sum(rate({job="a"}))', 'sum(rate({job="a"}[5m])'])
def test_what_is_no_logql_is_found(query: str) -> None:
    assert logql(['{job="a"}', query])[1] is not None


def test_every_promql_query_is_one(tmp_path: Path) -> None:
    asked = queries("prometheus")
    assert len(asked) > 15
    assert promql(asked, tmp_path)[0] == 0, promql(asked, tmp_path)[1]


@pytest.mark.parametrize("query", ["rate(job_recovery_stopped)", "sum(job_recovery_stopped", "job_recovery_stopped[5m"])
def test_what_is_no_promql_is_found(query: str, tmp_path: Path) -> None:
    assert promql([query], tmp_path)[0] != 0


def known_metrics() -> dict[str, set[str]]:
    """Labels by the name of every sample that is served."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", METRICS, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def test_queries_and_alerts_ask_for_metrics_and_labels_that_are_served() -> None:
    known = known_metrics()
    for query in queries("prometheus") + [rule["expr"] for rule in rules()]:
        names = re.findall(r"job_recovery_\w+", query)
        assert names
        labels = set().union(*(known[name] for name in names))
        grouped = ",".join(re.findall(r"by \(([^)]*)\)", query)).replace(" ", "").split(",")
        assert set(re.findall(r"(\w+)\s*[=!]~?\"", query)) | set(filter(None, grouped)) <= labels | {"le"}, query


def test_values_that_queries_and_alerts_name_exist() -> None:
    """A value that was renamed would leave an alert that never fires."""
    served = set(re.findall(r'"([^"]*)"', METRICS)) | set(gates.GATES)
    for query in queries("prometheus") + [rule["expr"] for rule in rules()]:
        for label, values in re.findall(r"(\w+)\s*=~?\"([^\"]*)\"", query):
            if label != "cluster":
                assert set(values.split("|")) <= served, query


def test_lines_have_what_queries_ask_of_them() -> None:
    for query in queries("loki"):
        stream = query[query.index("{") + 1 : query.index("}")]
        assert dict(re.findall(r'(\w+)="([^"]*)"', stream)).get("component", "fault") in lines.KINDS
        assert set(re.findall(r"\| (\w+)[=!]", query)) <= LINE_KEYS
        assert set(re.findall(r"\{\{\.(\w+)\}\}", query)) <= LINE_KEYS
    for board in BOARDS.values():
        for panel in board["panels"]:
            for step in panel.get("transformations", []):
                columns = step["options"].get("include", {}).get("names", [])
                assert set(columns) - {"Time"} <= LINE_KEYS


def test_alerts_are_rules() -> None:
    status, said = promtool("check", "rules", str(ALERTS))
    assert status == 0, said


C = 'cluster="lab"'
# alert, series with one value for each minute, minute, labels that fire; none where the tuple is empty
FIRES = [
    ("JobRecoveryDown", {}, 10, ({"severity": "critical"},)),
    ("JobRecoveryDown", {'job_recovery_mode{%s,mode="act"}' % C: "1x20"}, 10, ()),
    ("JobRecoveryDeaf", {'job_recovery_source_last_seen_timestamp_seconds{%s,source="slurm"}' % C: "0x20"}, 10,
     ({"severity": "critical", "source": "slurm"},)),
    ("JobRecoveryDeaf", {'job_recovery_source_last_seen_timestamp_seconds{%s,source="slurm"}' % C: "0+60x20"}, 10, ()),
    ("JobRecoveryDeaf", {'job_recovery_source_last_seen_timestamp_seconds{%s,source="reporter-"}' % C: "0x20"}, 10, ()),
    ("JobRecoverySourceFailing", {'job_recovery_source_failing{%s,source="slurm"}' % C: "1x20"}, 11,
     ({"severity": "warning", "source": "slurm"},)),
    ("JobRecoverySourceFailing", {'job_recovery_source_failing{%s,source="slurm"}' % C: "1x5 0x15"}, 11, ()),
    ("JobRecoveryLedgerAway", {"job_recovery_ledger_up{%s}" % C: "1 0x20"}, 6, ({"severity": "critical"},)),
    ("JobRecoveryLedgerAway", {"job_recovery_ledger_up{%s}" % C: "1x20"}, 6, ()),
    ("JobRecoveryLedgerRestored", {"job_recovery_ledger_restored{%s}" % C: "1x5"}, 1, ({"severity": "warning"},)),
    ("JobRecoveryEventsLost", {"job_recovery_canary_sent_timestamp_seconds{%s}" % C: "0x30"}, 20,
     ({"severity": "critical"},)),
    ("JobRecoveryEventsLost", {"job_recovery_canary_sent_timestamp_seconds{%s}" % C: "0+60x30"}, 20, ()),
    ("JobRecoveryStopped", {"job_recovery_stopped{%s}" % C: "1x40"}, 31, ({"severity": "warning"},)),
    ("JobRecoveryStopped", {"job_recovery_stopped{%s}" % C: "1x40"}, 20, ()),
    ("JobRecoveryBreakerOpen", {'job_recovery_breaker_open{%s,target_kind="node"}' % C: "1x5"}, 1,
     ({"severity": "critical", "target_kind": "node"},)),
    ("JobRecoveryBreakerOpen", {'job_recovery_breaker_open{%s,target_kind="node"}' % C: "0x5"}, 1, ()),
    ("JobRecoveryNodesForAPerson", {'job_recovery_nodes_out{%s,waiting_for="person"}' % C: "2x30"}, 16,
     ({"severity": "warning", "waiting_for": "person"},)),
    ("JobRecoveryNodesForAPerson", {'job_recovery_nodes_out{%s,waiting_for="recovery"}' % C: "2x30"}, 16, ()),
    ("JobRecoveryFailsRepeatedly",
     {'job_recovery_incidents_total{%s,target_kind="node",outcome="escalated"}' % C: "0+1x360"}, 60,
     ({"severity": "warning"},)),
    ("JobRecoveryFailsRepeatedly",
     {'job_recovery_incidents_total{%s,target_kind="node",outcome="recovered"}' % C: "0+1x360"}, 60, ()),
    ("JobRecoveryHeldBack", {'job_recovery_refusals_total{%s,gate="common_cause"}' % C: "0+1x60"}, 30,
     ({"severity": "warning", "gate": "common_cause"},)),
    ("JobRecoveryHeldBack", {'job_recovery_refusals_total{%s,gate="owner"}' % C: "0+1x60"}, 30, ()),
    ("JobRecoveryOutboxBehind", {'job_recovery_outbox_lines{%s,sink="loki"}' % C: "2000x40"}, 16,
     ({"severity": "warning", "sink": "loki"},)),
    ("JobRecoveryOutboxBehind", {'job_recovery_outbox_lines{%s,sink="loki"}' % C: "900x40"}, 16, ()),
]  # fmt: skip


def test_every_alert_fires_when_it_shall_and_only_then(tmp_path: Path) -> None:
    assert {case[0] for case in FIRES if case[3]} == {rule["alert"] for rule in rules()}
    tests = []
    for alert, series, minute, fired in FIRES:
        common = {} if alert == "JobRecoveryDown" else {"cluster": "lab"}
        check = {"eval_time": "%dm" % minute, "alertname": alert}
        check["exp_alerts"] = [{"exp_labels": {**common, **labels}} for labels in fired]
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [check],
            }
        )
    # promtool compares annotations too: their words are this collection's and no condition
    plain = {"groups": yaml.safe_load(ALERTS.read_text())["groups"]}
    for rule in plain["groups"][0]["rules"]:
        del rule["annotations"]
    (tmp_path / "rules.yaml").write_text(json.dumps(plain))
    (tmp_path / "tests.yaml").write_text(
        json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    status, said = promtool("test", "rules", str(tmp_path / "tests.yaml"))
    assert status == 0, said


def test_the_charts_version_is_the_collections_and_its_schema_knows_its_values() -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert sorted(set(schema["properties"]) - {"global"}) == sorted(values)
    for name, part in values.items():
        assert sorted(schema["properties"][name]["properties"]) == sorted(part)
