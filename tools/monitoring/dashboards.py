# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboards, built with Grafana's own library. Names of metrics, labels and lines are those of module_utils/show.

Every dashboard chooses its data sources and clusters by variables, so that it fits any Grafana. What a line says is
shown by the panels of logs and tables, which show text as text.
"""

from __future__ import annotations

import json
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, logs, loki, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import table as tables
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LogsSortOrder, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

TAG = "job-recovery"
PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${prometheus}")
LOKI = DataSourceRef(type_val="loki", uid="${loki}")
CLUSTER = 'cluster=~"$cluster"'
LINES = '{job="job-recovery", %s' % CLUSTER
SHOWN = (
    '| line_format "{{.kind}} #{{.incident}} {{.target}} {{.fault_kind}} {{.remediation}} {{.step}} {{.gate}} '
    '{{.status}}: {{.why}}"'
)


def files() -> dict[str, str]:
    """By file name the JSON of every dashboard."""
    made = (overview(), incident(), node(), refusals(), jobs())
    return {"%s.json" % board.build().uid: text_of(board) for board in made}


def text_of(board: dashboard.Dashboard) -> str:
    """As it is kept: stable, so that a difference is a change."""
    plain = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    for number, panel in enumerate(plain["panels"], 1):
        panel["id"] = number
    return json.dumps(plain, indent=2, sort_keys=True) + "\n"


def overview() -> dashboard.Dashboard:
    """How recovery is, what it did, how long that took and what it cost."""
    ended = "sum by (outcome) (increase(job_recovery_incidents_total{%s}[$__range]))" % CLUSTER
    well = 'sum(increase(job_recovery_incidents_total{%s, outcome="recovered"}[$__range]))' % CLUSTER
    tried = 'sum(increase(job_recovery_incidents_total{%s, outcome=~"recovered|escalated"}[$__range]))' % CLUSTER
    took = "sum by (le) (increase(job_recovery_recovery_seconds_bucket{%s}[$__range]))" % CLUSTER
    lost = "sum by (waiting_for) (increase(job_recovery_node_out_seconds_total{%s}[$__range])) / 3600" % CLUSTER
    troubles = {
        "the ledger is away": "max(1 - job_recovery_ledger_up{%s})" % CLUSTER,
        "stopped": "max(job_recovery_stopped{%s})" % CLUSTER,
        "breaker": "max(job_recovery_breaker_open{%s})" % CLUSTER,
        "restored ledger": "max(job_recovery_ledger_restored{%s})" % CLUSTER,
        "only observes": 'max(job_recovery_mode{%s, mode="observe"})' % CLUSTER,
    }
    seen = "time() - job_recovery_source_last_seen_timestamp_seconds{%s}" % CLUSTER
    return (
        board("job-recovery-overview", "Job recovery", "Faults, recoveries, their success, and what they cost.")
        .with_row(dashboard.Row("Now"))
        .with_panel(numbers("Hindrances", troubles, 8, "1: it is so.", limits=((1.0, "red"),)))
        .with_panel(
            numbers(
                "Open incidents",
                {"{{state}}": "sum by (state) (job_recovery_incidents_open{%s})" % CLUSTER},
                8,
                "escalated: they wait for a person.",
            )
        )
        .with_panel(
            numbers(
                "Nodes out of service",
                {"waiting for {{waiting_for}}": "sum by (waiting_for) (job_recovery_nodes_out{%s})" % CLUSTER},
                8,
                "Held by recovery.",
            )
        )
        .with_row(dashboard.Row("In the time chosen"))
        .with_panel(numbers("Incidents that ended", {"{{outcome}}": ended}, 8, "recovered: with proof.", decimals=0))
        .with_panel(
            numbers("Success", {"recovered": "%s / %s" % (well, tried)}, 4, "Of those that did not end by themselves.")
            .unit("percentunit")
        )
        .with_panel(
            numbers(
                "Time to recover",
                {
                    "half within": "histogram_quantile(0.5, %s)" % took,
                    "95 % within": "histogram_quantile(0.95, %s)" % took,
                },
                6,
                "From a fault to the proof that it is gone.",
            ).unit("s")
        )
        .with_panel(
            numbers("Lost node-hours", {"waiting for {{waiting_for}}": lost}, 6, "Held by recovery.", decimals=1)
            .unit("h")
        )
        .with_row(dashboard.Row("Over time"))
        .with_panel(over_time("Faults", "{{fault_kind}}", per("fault_kind", "faults_total"), 12, "Taken up."))
        .with_panel(over_time("Incidents that ended", "{{outcome}}", per("outcome", "incidents_total"), 12, ""))
        .with_panel(
            over_time(
                "Nodes out of service",
                "waiting for {{waiting_for}}",
                "sum by (waiting_for) (job_recovery_nodes_out{%s})" % CLUSTER,
                12,
                "Held by recovery.",
            )
        )
        .with_panel(over_time("Steps that failed", "{{step}}", failed_steps(), 12, ""))
        .with_row(dashboard.Row("Recovery itself"))
        .with_panel(over_time("Last sign of life", "{{source}}", seen, 12, "Of each source; its age.").unit("s"))
        .with_panel(
            over_time(
                "The way of an event",
                "{{cluster}}",
                "job_recovery_canary_way_seconds{%s}" % CLUSTER,
                6,
                "Of one that is sent every five minutes: to a playbook and into the ledger.",
            ).unit("s")
        )
        .with_panel(
            over_time("Not told yet", "{{sink}}", "job_recovery_outbox_lines{%s}" % CLUSTER, 6, "Lines for Loki.")
        )
    )


def incident() -> dashboard.Dashboard:
    """One incident, or all, as they went on."""
    chosen = LINES + '} | json | incident=~"$incident"'
    return (
        board("job-recovery-incidents", "Job recovery: incidents", "What was seen and done.", lines_alone=True)
        .with_variable(dashboard.TextBoxVariable("incident").label("Incident").default_value(".+"))
        .with_panel(line_panel("As it went on", "%s %s" % (chosen, SHOWN), 24, 12, oldest_first=True))
        .with_panel(
            line_table(
                "Steps",
                LINES + ', component="step"} | json | incident=~"$incident" | status!="started"',
                ["incident", "target", "remediation", "step", "status", "seconds", "why"],
            )
        )
        .with_panel(
            line_table(
                "Outcomes",
                LINES + ', component="outcome"} | json | incident=~"$incident"',
                ["incident", "target", "fault_kind", "remediation", "status", "seconds", "why"],
            )
        )
    )


def node() -> dashboard.Dashboard:
    """The history of one node: what happened to it again and again."""
    chosen = '%s | json | machine=~"$node"'
    return (
        board("job-recovery-nodes", "Job recovery: nodes", "What happened to a node.", lines_alone=True)
        .with_variable(dashboard.TextBoxVariable("node").label("Node").default_value(".+"))
        .with_panel(
            counted_lines(
                "Nodes with the most faults",
                'topk(15, sum by (machine) (count_over_time(%s | machine!="" [$__range])))'
                % (chosen % (LINES + ', component="fault"}')),
                "{{machine}}",
            )
        )
        .with_panel(
            counted_lines(
                "Faults by kind",
                "sum by (fault_kind) (count_over_time(%s [$__range]))" % (chosen % (LINES + ', component="fault"}')),
                "{{fault_kind}}",
            )
        )
        .with_panel(
            line_table(
                "Outcomes",
                chosen % (LINES + ', component="outcome"}'),
                ["machine", "incident", "fault_kind", "remediation", "status", "seconds", "why"],
            )
        )
        .with_panel(line_panel("Everything", "%s %s" % (chosen % (LINES + "}"), SHOWN), 24, 12))
    )


def refusals() -> dashboard.Dashboard:
    """Why nothing was done."""
    return (
        board("job-recovery-refusals", "Job recovery: refusals", "Why nothing was done.", with_lines=True)
        .with_panel(
            numbers(
                "Refusals by gate",
                {"{{gate}}": "sum by (gate) (increase(job_recovery_refusals_total{%s}[$__range])) > 0" % CLUSTER},
                24,
                "A fault that lasts is refused again each minute.",
                decimals=0,
            )
        )
        .with_panel(over_time("Over time", "{{gate}}", per("gate", "refusals_total"), 24, ""))
        .with_panel(
            line_table(
                "Told once a day for each target, fault and gate",
                LINES + ', component="refusal"} | json',
                ["target_kind", "target", "fault_kind", "gate", "remediation", "why"],
            )
        )
        .with_panel(line_panel("Commands of people", LINES + ', component="command"} | json ' + SHOWN, 24, 8))
    )


def jobs() -> dashboard.Dashboard:
    """Restarts of jobs."""
    restarts = 'job_recovery_steps_total{%s, step=~"requeue|rerun|release_successor", status="done"}' % CLUSTER
    attempts = (
        'topk(15, sum by (target) (count_over_time(%s, component="step"} | json | target_kind="job" '
        '| step=~"requeue|rerun|release_successor" | status="done" [$__range])))' % LINES
    )
    told = ["target", "scheduler", "fault_kind", "remediation", "status", "seconds", "why"]
    return (
        board("job-recovery-jobs", "Job recovery: jobs", "Restarts of jobs.", with_lines=True)
        .with_panel(
            numbers(
                "Restarts",
                {"{{step}}": "sum by (step) (increase(%s[$__range]))" % restarts},
                12,
                "requeue: in Slurm; rerun: in Kubernetes; release_successor: a held job runs instead.",
                decimals=0,
            )
        )
        .with_panel(
            numbers(
                "Jobs by outcome",
                {
                    "{{outcome}}": 'sum by (outcome) (increase(job_recovery_incidents_total{%s, target_kind="job"}'
                    "[$__range]))" % CLUSTER
                },
                12,
                "escalated: left to a person.",
                decimals=0,
            )
        )
        .with_panel(
            over_time("Restarts", "{{step}}", "sum by (step) (increase(%s[$__rate_interval]))" % restarts, 12, "")
        )
        .with_panel(counted_lines("Jobs with the most restarts", attempts, "{{target}}"))
        .with_panel(line_table("Jobs", LINES + ', component="outcome"} | json | target_kind="job"', told))
    )


# ---- parts ----


def board(
    uid: str, title: str, text: str, with_lines: bool = False, lines_alone: bool = False
) -> dashboard.Dashboard:
    """An empty dashboard with its variables: made of metrics, of metrics and lines, or of lines alone."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags([TAG])
        .time("now-24h", "now")
        .refresh("1m")
        .timezone("browser")
        .readonly()
        .link(dashboard.DashboardLink("Job recovery").type(DashboardLinkType.DASHBOARDS).tags([TAG]).keep_time(True))
    )
    if not lines_alone:
        made = made.with_variable(dashboard.DatasourceVariable("prometheus").label("Metrics").type("prometheus"))
    if with_lines or lines_alone:
        made = made.with_variable(dashboard.DatasourceVariable("loki").label("Logs").type("loki"))
    known: Any = "label_values(job_recovery_ledger_up, cluster)"
    if lines_alone:
        known = {"label": "cluster", "refId": "cluster", "stream": '{job="job-recovery"}', "type": 1}
    return made.with_variable(
        dashboard.QueryVariable("cluster")
        .label("Cluster")
        .datasource(LOKI if lines_alone else PROMETHEUS)
        .query(known)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".+")
        .multi(True)
    )


def per(label: str, name: str) -> str:
    """How often things happened, by a label."""
    return "sum by (%s) (increase(job_recovery_%s{%s}[$__rate_interval]))" % (label, name, CLUSTER)


def failed_steps() -> str:
    """How often steps failed."""
    return 'sum by (step) (increase(job_recovery_steps_total{%s, status="failed"}[$__rate_interval]))' % CLUSTER


def metric(query: str, legend: str, letter: str, instant: bool) -> prometheus.Dataquery:
    """A query for Prometheus."""
    made = prometheus.Dataquery().ref_id(letter).datasource(PROMETHEUS).expr(query).legend_format(legend)
    return made.instant() if instant else made.range()


def numbers(
    title: str,
    queries: dict[str, str],
    width: int,
    text: str,
    decimals: int | None = None,
    limits: tuple[tuple[float, str], ...] = (),
) -> stat.Panel:
    """Numbers as they are now, by legend."""
    steps = [Threshold(color="green", value=None), *(Threshold(color=color, value=value) for value, color in limits)]
    made = (
        stat.Panel()
        .title(title)
        .description(text)
        .datasource(PROMETHEUS)
        .span(width)
        .height(5)
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .targets([metric(query, legend, chr(65 + at), True) for at, (legend, query) in enumerate(queries.items())])
    )
    return made if decimals is None else made.decimals(decimals)


def over_time(title: str, legend: str, query: str, width: int, text: str) -> timeseries.Panel:
    """A line for each legend."""
    return (
        timeseries.Panel()
        .title(title)
        .description(text)
        .datasource(PROMETHEUS)
        .span(width)
        .height(8)
        .min(0)
        .fill_opacity(10)
        .stacking(common.StackingConfig().mode(StackingMode.NONE))
        .with_target(metric(query, legend, "A", False))
    )


def lines(query: str) -> loki.Dataquery:
    """A query for lines."""
    return loki.Dataquery().ref_id("A").datasource(LOKI).expr(query).query_type("range").max_lines(1000)


def line_panel(title: str, query: str, width: int, height: int, oldest_first: bool = False) -> logs.Panel:
    """Lines as they are."""
    order = LogsSortOrder.ASCENDING if oldest_first else LogsSortOrder.DESCENDING
    return (
        logs.Panel()
        .title(title)
        .datasource(LOKI)
        .span(width)
        .height(height)
        .show_time(True)
        .wrap_log_message(True)
        .sort_order(order)
        .with_target(lines(query))
    )


def line_table(title: str, query: str, columns: list[str]) -> tables.Panel:
    """Lines as a table: these keys of them, in this order."""
    names = ["Time", *columns]
    return (
        tables.Panel()
        .title(title)
        .datasource(LOKI)
        .span(24)
        .height(9)
        .filterable(True)
        .with_target(lines(query))
        .transformations(
            [
                transformation("extractFields", {"source": "Line", "format": "json", "replace": False}),
                transformation("filterFieldsByName", {"include": {"names": names}}),
                transformation("organize", {"indexByName": {name: at for at, name in enumerate(names)}}),
            ]
        )
    )


def counted_lines(title: str, query: str, legend: str) -> bargauge.Panel:
    """How many lines, by legend."""
    target = loki.Dataquery().ref_id("A").datasource(LOKI).expr(query).query_type("instant").legend_format(legend)
    return (
        bargauge.Panel().title(title).datasource(LOKI).span(12).height(9).min(0).decimals(0).with_target(target)
    )


def transformation(name: str, options: dict[str, Any]) -> DataTransformerConfig:
    """One transformation of a panel's data."""
    return DataTransformerConfig(id_val=name, options=options)
