"""Release on a SLURM cluster: ``python deploy/slurm/release.py SPEC --queue private --jobs 8``.

For the extra ``[hpc]``. Scheduler, ledger and noise are in this process, on a login or service
node; the jobs it submits are workers only. ``DASK_CONFIG`` names the folder of ``dask.yaml`` and,
like the certificates it names, is on a file system that the nodes share, readable by you alone.

A scheduler unpickles what workers send, and this one is where the key is: here workers are trusted
as the releasing process is. Where they are not, run a scheduler of its own and `dbern release
--scheduler`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dask_jobqueue import SLURMCluster
from distributed import Client, Security

import dbern

NO_PAGES = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
_WAIT_SECONDS = 3600


def cluster_for(given: argparse.Namespace) -> SLURMCluster:
    """Workers as jobs of the queue, over TLS, whose memory never reaches a disk.

    Raises
    ------
    KeyError
        Where ``DASK_CONFIG`` is not set: without it workers would talk plain TCP and spill.
    """
    settings = os.environ["DASK_CONFIG"]
    return SLURMCluster(
        queue=given.queue,
        account=given.account,
        cores=given.cores,
        processes=1,  # threads share the tables; counting releases the interpreter's lock
        memory=given.memory,
        walltime=given.walltime,
        interface=given.interface,
        protocol="tls://",
        security=Security(require_encryption=True),  # its files are those of dask.yaml
        scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        worker_extra_args=NO_PAGES,
        local_directory="/dev/shm",  # noqa: S108 -- memory: a node's disk sees nothing
        log_directory=given.logs,
        job_script_prologue=[f"export DASK_CONFIG={settings}", "ulimit -c 0"],
    )


def release(given: argparse.Namespace) -> int:
    """Release with the jobs that the queue gives; the exit code is that of ``dbern release``."""
    try:
        spec = dbern.ReleaseSpec.load(given.spec, partition=given.partition)
        with cluster_for(given) as cluster, Client(cluster) as client:
            cluster.scale(jobs=given.jobs)
            client.wait_for_workers(1, timeout=_WAIT_SECONDS)  # the others join when they start
            out = dbern.release(spec, client=client)
    except dbern.DbernError as error:
        print(f"dbern: {error}", file=sys.stderr)
        return error.exit_code
    print("; ".join([f"{out.url} for {out.charge}", *out.notes]))
    return 0


def arguments_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("--partition", metavar="P")
    parser.add_argument("--queue", metavar="PARTITION", help="of SLURM")
    parser.add_argument("--account", metavar="NAME", help="who pays for the nodes")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--cores", type=int, default=8, help="of a job")
    parser.add_argument("--memory", default="16GiB", help="of a job; the plan says what is needed")
    parser.add_argument("--walltime", default="02:00:00", help="a job that ends early costs time")
    parser.add_argument("--interface", metavar="NAME", help="network of the nodes, as ib0")
    parser.add_argument("--logs", metavar="FOLDER", help="for the jobs' output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(release(arguments_of()))
