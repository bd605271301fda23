"""The pipelines as Dagster assets: ``dagster dev -m pipelines.definitions``.

Partitions, schedules, retries, backfills and pictures are Dagster's; charges are the ledger's.
A backfill, a retry or a second click on a partition that is published spends nothing.
"""

# No `from __future__ import annotations` here: Dagster looks at the types themselves.
import base64
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import dagster as dg
from matplotlib.figure import Figure

import dbern
from pipelines.score import score

DAILY = dg.DailyPartitionsDefinition(start_date="2026-11-01")
WEEKLY = dg.WeeklyPartitionsDefinition(start_date="2026-11-02", day_offset=1)  # from Mondays
AGAIN = dg.RetryPolicy(max_retries=3, delay=60, backoff=dg.Backoff.EXPONENTIAL)
LOW = 0.2
_PASSING = {1, 4}  # failed, environment: the same call may do better later
_GRID = 80


class Releases(dg.ConfigurableResource[None]):
    """Locations of specs, data and outputs, and the cluster that counts.

    `folder` holds the specs; their relative paths, and those below, start there. `scheduler` is a
    Dask cluster, as ``tls://host:8786``; otherwise threads of the run's own process count.
    `classifiers`, `applicants` and `scored` are paths, or URLs as ``s3://bucket/name``, of the
    weekly releases, the table to score, and its scores.
    """

    folder: str = "."
    scheduler: str | None = None
    classifiers: str = "out/risk"
    applicants: str = "data/applicants.parquet"
    scored: str = "scored"

    def path(self, name: str) -> str:
        """Return a file or folder of the pipelines; a URL stays what it is."""
        return name if "://" in name else str(Path(self.folder, name))

    def materialize(self, spec_name: str, partition: str) -> dg.MaterializeResult[None]:
        """Release a partition, or find it released, and report it."""
        with _failures():
            spec = dbern.ReleaseSpec.load(self.path(spec_name), partition=partition)
            out = dbern.release(spec, scheduler=self.scheduler)
            night = f"{out.url}@{partition}..{partition}"
            synopsis = dbern.open(night) if spec.stream else out.synopsis
            synopsis.verify()
        facts = synopsis.metadata
        return dg.MaterializeResult(
            metadata={
                "epsilon spent": facts["epsilon"],
                "delta spent": facts["delta"],
                "certified sup error": dg.MetadataValue.float(synopsis.bound().total),
                "band": dg.MetadataValue.float(synopsis.band()),
                "budget remaining": dg.MetadataValue.float(self.remaining(spec_name, partition)),
                "synopsis": dg.MetadataValue.path(out.url),
                "picture": dg.MetadataValue.md(_picture(synopsis)),
                "notes": dg.MetadataValue.text("; ".join(out.notes)),
            }
        )

    def remaining(self, spec_name: str, partition: str) -> float:
        """Return the share of the dataset's granted budget that is left."""
        spec = dbern.ReleaseSpec.load(self.path(spec_name), partition=partition)
        with chdir(self.folder), dbern.BudgetLedger.open(spec.budget.ledger, read_only=True) as one:
            (account,) = one.status(spec.budget.dataset)
        return float(account.remaining_share)


@contextmanager
def _failures() -> Iterator[None]:
    """Make a refusal final, whoever asks; a failure of a worker or a network is tried again."""
    try:
        yield
    except dbern.DbernError as error:
        raise dg.Failure(
            str(error),
            metadata={"kind": error.kind, "exit code": error.exit_code},
            allow_retries=error.exit_code in _PASSING,
        ) from error


def _picture(synopsis: dbern.Synopsis) -> str:
    figure = Figure(figsize=(5, 4), layout="constrained")
    grid = synopsis.grid(_GRID)
    grid.plot(ax=figure.add_subplot())  # type: ignore[call-arg]  # its wrapper hides self
    png = BytesIO()
    figure.savefig(png, format="png")
    return f"![released](data:image/png;base64,{base64.b64encode(png.getvalue()).decode()})"


@dg.asset(partitions_def=DAILY, retry_policy=AGAIN, group_name="releases")
def trip_density(
    context: dg.AssetExecutionContext, releases: Releases
) -> dg.MaterializeResult[None]:
    """Where a day's trips began."""
    return releases.materialize("nightly.toml", context.partition_key)


@dg.asset(partitions_def=DAILY, retry_policy=AGAIN, group_name="releases")
def trips_of_the_year(
    context: dg.AssetExecutionContext, releases: Releases
) -> dg.MaterializeResult[None]:
    """Where a day's trips began, of a stream: a year for one charge, in any order."""
    return releases.materialize("year.toml", context.partition_key)


@dg.asset(partitions_def=WEEKLY, retry_policy=AGAIN, group_name="releases")
def risk_classifier(
    context: dg.AssetExecutionContext, releases: Releases
) -> dg.MaterializeResult[None]:
    """Which of a week's loans defaulted: a decision function of income and debt."""
    return releases.materialize("weekly.toml", context.partition_key)


@dg.asset(deps=[risk_classifier], retry_policy=AGAIN, group_name="queries")
def scored_applicants(releases: Releases) -> dg.MaterializeResult[None]:
    """Every applicant with the newest classifier's value; free, it reads no record."""
    names = releases.classifiers, releases.applicants, releases.scored
    code, facts = score(*map(releases.path, names))
    if code:
        raise dg.Failure(
            facts["message"], metadata={"exit code": code}, allow_retries=code in _PASSING
        )
    rows = "there already" if facts["already"] else str(facts["rows"])
    return dg.MaterializeResult(
        metadata={
            "epsilon spent": "0",
            "synopsis": dg.MetadataValue.path(facts["synopsis"]),
            "scores": dg.MetadataValue.path(facts["scores"]),
            "rows": rows,
        }
    )


def _budget_check(asset: dg.AssetsDefinition, spec_name: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=asset, name="budget_left")
    def check(releases: Releases) -> dg.AssetCheckResult:
        today = str(datetime.now(UTC).date())  # the ledger is the same for every partition
        share = releases.remaining(spec_name, today)
        return dg.AssetCheckResult(
            passed=share >= LOW,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"budget remaining": share},
        )

    return check


checks = {
    "nightly.toml": _budget_check(trip_density, "nightly.toml"),
    "weekly.toml": _budget_check(risk_classifier, "weekly.toml"),
}

nightly_job = dg.define_asset_job("nightly", [trip_density])
year_job = dg.define_asset_job("year", [trips_of_the_year])
weekly_job = dg.define_asset_job("weekly", [risk_classifier])
scoring_job = dg.define_asset_job("scoring", [scored_applicants])

defs = dg.Definitions(
    assets=[trip_density, trips_of_the_year, risk_classifier, scored_applicants],
    asset_checks=list(checks.values()),
    jobs=[nightly_job, year_job, weekly_job, scoring_job],
    schedules=[
        dg.build_schedule_from_partitioned_job(nightly_job, hour_of_day=2, minute_of_hour=30),
        dg.build_schedule_from_partitioned_job(year_job, hour_of_day=2, minute_of_hour=45),
        dg.build_schedule_from_partitioned_job(weekly_job, hour_of_day=3, minute_of_hour=30),
        dg.ScheduleDefinition(job=scoring_job, cron_schedule="30 4 * * 1"),
    ],
    resources={"releases": Releases()},
)
