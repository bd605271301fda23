"""The Dagster definitions, run in this process: partitions, metadata, backfill, refusals."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import dbern
from dbern.ledger import Request

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "pipelines"
NIGHTS = ["2026-11-17", "2026-11-18", "2026-11-19"]


@pytest.fixture
def pipelines(folder, tmp_path_factory, monkeypatch):
    """The definitions' module and a folder for it, which is not the current one."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    import dagster

    from pipelines import definitions

    return dagster, definitions, definitions.Releases(folder=str(folder))


def spent(releases, dataset="trips"):
    with dbern.BudgetLedger.open(f"sqlite:///{releases.folder}/ledger.db") as ledger:
        return str(ledger.status(dataset)[0].spent)


def test_a_backfill_with_metadata_and_a_check_spends_once_a_partition(pipelines):
    dg, definitions, releases = pipelines
    instance = dg.DagsterInstance.ephemeral()

    def materialize(night):
        return dg.materialize(
            [definitions.trip_density, definitions.checks["nightly.toml"]], partition_key=night,
            resources={"releases": releases}, instance=instance,
        )  # fmt: skip

    for night in [*NIGHTS, NIGHTS[0]]:  # the last is a second click
        result = materialize(night)
        assert result.success
    assert spent(releases) == "epsilon 0.3"
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    (event,) = result.asset_materializations_for_node("trip_density")
    told = {name: value.value for name, value in event.metadata.items()}
    assert told["epsilon spent"] == "0.1"
    assert told["budget remaining"] == 0
    assert told["band"] > 0
    assert told["certified sup error"] > 0
    assert told["picture"].startswith("![released](data:image/png;base64,iVBOR")
    assert "nothing was charged" in told["notes"]
    done = instance.get_materialized_partitions(dg.AssetKey("trip_density"))
    assert done == set(NIGHTS)


def test_a_stream_is_backfilled_in_any_order_for_one_charge(pipelines):
    dg, definitions, releases = pipelines
    spec = Path(releases.folder) / "year.toml"
    spec.write_text((FOLDER / "year.toml").read_text() + "[mechanism]\nk = 6\nh = 2\n")
    with dbern.BudgetLedger.open(f"sqlite:///{releases.folder}/ledger.db") as ledger:
        neighbors = dbern.Neighbors.ADD_OR_REMOVE_ONE
        ledger.grant("year", dbern.Budget.parse("1.0"), neighbors=neighbors)
    for night in [NIGHTS[1], NIGHTS[0], NIGHTS[2], NIGHTS[1]]:
        result = dg.materialize(
            [definitions.trips_of_the_year], partition_key=night, resources={"releases": releases}
        )
        assert result.success
    assert spent(releases, "year") == "epsilon 1"
    stream = dbern.open_stream(Path(releases.folder) / "out" / "year")
    assert stream.between(NIGHTS[0], NIGHTS[2])([[5.0, 5.0]])[0] > 0


def test_classifier_and_scores(pipelines):
    dg, definitions, releases = pipelines
    resources = {"releases": releases}
    week = dg.materialize(
        [definitions.risk_classifier], partition_key="2026-11-09", resources=resources
    )
    assert week.success
    for rows in ("16000", "there already"):  # 4000 rows a week, four times as many applicants
        scored = dg.materialize([definitions.scored_applicants], resources=resources)
        assert scored.success
        (event,) = scored.asset_materializations_for_node("scored_applicants")
        told = {name: value.value for name, value in event.metadata.items()}
        assert (told["epsilon spent"], told["rows"]) == ("0", rows)
        assert told["synopsis"].endswith("out/risk/2026-11-09.zarr")
        assert Path(told["scores"]).stem == "applicants-2026-11-09"
    assert [p.stem for p in Path(releases.path("scored")).iterdir()] == ["applicants-2026-11-09"]


def test_scores_without_a_classifier_are_not_tried_again(pipelines):
    dg, definitions, releases = pipelines
    result = dg.materialize(
        [definitions.scored_applicants], resources={"releases": releases}, raise_on_error=False
    )
    failed = result.failure_data_for_node("scored_applicants")
    assert "holds no published synopsis yet" in failed.user_failure_data.description
    assert failed.user_failure_data.metadata["exit code"].value == 2
    assert "STEP_UP_FOR_RETRY" not in {event.event_type_value for event in result.all_events}


def test_urls_are_no_paths_below_the_folder(pipelines):
    _, _, releases = pipelines
    assert releases.path("s3://scores/2026") == "s3://scores/2026"
    assert releases.path("scored") == f"{releases.folder}/scored"


def test_a_refused_budget_is_not_tried_again(pipelines):
    dg, definitions, releases = pipelines
    with dbern.BudgetLedger.open(f"sqlite:///{releases.folder}/ledger.db") as ledger:
        for number in range(3):
            spec = dbern.ReleaseSpec.load(releases.path("nightly.toml"), partition=f"x{number}")
            ledger.reserve(Request("trips", spec.release.name, spec.charge, identity={}))
    result = dg.materialize(
        [definitions.trip_density], partition_key=NIGHTS[0], resources={"releases": releases},
        raise_on_error=False,
    )  # fmt: skip
    failed = result.failure_data_for_node("trip_density")
    assert not result.success
    assert failed.user_failure_data.metadata["kind"].value == "budget-refused"
    assert "cannot pay" in failed.user_failure_data.description
    assert "STEP_UP_FOR_RETRY" not in {event.event_type_value for event in result.all_events}


def test_only_what_may_pass_is_tried_again(pipelines):
    dg, definitions, _ = pipelines
    for error, again in [
        (dbern.ReleaseError, True), (dbern.EnvironmentRefusedError, True),
        (dbern.BudgetError, False), (dbern.SpecError, False), (dbern.IntegrityError, False),
    ]:  # fmt: skip
        with pytest.raises(dg.Failure) as failure, definitions._failures():
            raise error("x")
        assert failure.value.allow_retries is again


def test_each_day_and_week_has_its_run_after_it_ends(pipelines):
    dg, definitions, _ = pipelines
    dg.Definitions.validate_loadable(definitions.defs)
    now = datetime.fromisoformat("2026-11-20T02:30:00+00:00")
    requested = {}
    repository = definitions.defs.get_repository_def()
    for schedule in repository.schedule_defs:
        context = dg.build_schedule_context(scheduled_execution_time=now, repository_def=repository)
        if schedule.job_name != "scoring":
            (request,) = schedule.evaluate_tick(context).run_requests
            requested[schedule.job_name] = request.partition_key
    night = "2026-11-19"
    assert requested == {"nightly": night, "year": night, "weekly": "2026-11-09"}
