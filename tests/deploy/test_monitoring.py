"""Alerts and dashboard ask for metrics that there are, and an alert decides nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from dbern.cli.metrics import _HELP

FOLDER = Path(__file__).parents[2] / "deploy"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "monitoring/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "monitoring/dashboard.json").read_text())
PANELS = DASHBOARD["panels"]


def asked(expression):
    return set(re.findall(r"\bdbern_(\w+)", expression))


def test_every_expression_asks_for_metrics_that_there_are():
    said = [rule["expr"] for rule in RULES]
    said += [target["expr"] for panel in PANELS for target in panel["targets"]]
    for expression in said:
        assert asked(expression), expression
        assert asked(expression) <= set(_HELP), expression
    assert asked("dbern_budget_left < 1") - set(_HELP)
    unused = set(_HELP) - {"info", "partitions_due", "budget_granted", "stage_seconds"}
    for expressions in (said[: len(RULES)], said[len(RULES) :]):
        shown = set.union(*map(asked, expressions))
        assert unused - shown <= {"budget_remaining", "releases"}
    assert {name for name in _HELP if "budget" in name} - {"budget_granted"} <= shown


def test_each_alert_says_what_to_do_and_who_decides():
    runbook = (FOLDER / "RUNBOOK.md").read_text()
    for rule in RULES:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule)
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}
        for chapter in re.findall('Runbook, "(.*?)"', rule["annotations"]["description"]):
            assert f"\n## {chapter}\n" in runbook, chapter
        assert f"`{rule['alert']}`" in runbook
    (low,) = (rule for rule in RULES if rule["alert"] == "DbernBudgetLow")
    assert "Those who answer for the data" in low["annotations"]["description"]
    assert "decide" in low["annotations"]["description"]


def test_the_dashboard_is_whole():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
    names = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))
    assert used <= names
