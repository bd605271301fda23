"""What is deployed is valid by the schemas of those who read it, and keeps this project's rules."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path

import click
import jsonschema
import kubernetes_validate
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.31", kubernetes_validate.latest_version())
USER = 10001


def loaded(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def objects():
    """Every Kubernetes object, those of a List one by one."""
    every = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text("utf-8"))]
    return [inner for one in every for inner in (one["items"] if one["kind"] == "List" else [one])]


def compose():
    return loaded(DEPLOY / "compose.yaml")


def after(words, flag):
    """What a command line says after a flag."""
    return words[words.index(flag) + 1]


def of_kind(kind):
    return {one["metadata"]["name"]: one for one in objects() if one["kind"] == kind}


def of_operator(kind):
    """The schema of a kind of the dask operator: its own, as the operator installs it.

    What it refers to of Kubernetes, pods and services, is validated where `pods` makes them.
    """
    folder = resources.files("dask_kubernetes.operator.customresources")
    templates = yaml.safe_load((folder / "templates.yaml").read_text())["definitions"]
    resource = yaml.safe_load((folder / f"{kind.lower()}.yaml").read_text())
    (version,) = resource["spec"]["versions"]
    return strict(version["schema"]["openAPIV3Schema"], templates)


def strict(schema, templates):
    """The API server drops keys that a schema does not know: here they are errors."""
    if isinstance(schema, list):
        return [strict(one, templates) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        file, _, name = schema["$ref"].partition("#/definitions/")
        return strict(templates[name], templates) if file.endswith("templates.yaml") else {}
    made = {key: strict(value, templates) for key, value in schema.items()}
    if "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def validate(one):
    if one["apiVersion"].startswith("kubernetes.dask.org/"):
        bare = {"spec": one["spec"]}
        jsonschema.Draft202012Validator(of_operator(one["kind"])).validate(bare)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(one, version, strict=True)


@cache
def pods():
    """Every pod that comes about, as its spec; those of the operator as it makes them."""
    return tuple(_pods())


def _pods():
    from dask_kubernetes.operator.controller import controller

    for name, one in of_kind("CronJob").items():
        yield name, one["spec"]["jobTemplate"]["spec"]["template"]
    clusters = {name: one["spec"] for name, one in of_kind("DaskCluster").items()}
    for name, one in of_kind("DaskJob").items():
        clusters[name] = one["spec"]["cluster"]["spec"]
        job = one["spec"]["job"]
        made = controller.build_job_pod_spec(
            name, name, "dbern", job["spec"], {}, job["metadata"]["labels"]
        )
        validate(made)
        yield name, made
    for name, spec in clusters.items():
        made = controller.build_scheduler_deployment_spec(name, spec["scheduler"]["spec"], {}, {})
        validate(made)
        yield f"{name}-scheduler", made["spec"]["template"]
        validate(
            controller.build_scheduler_service_spec(name, spec["scheduler"]["service"], {}, {})
        )
        made = controller.build_worker_deployment_spec(
            f"{name}-default", "dbern", name, "one", spec["worker"]["spec"], {}, {}
        )
        validate(made)
        yield f"{name}-worker", made["spec"]["template"]


def test_kubernetes_manifests_fit_the_schemas():
    every = list(objects())
    kinds = {one["kind"] for one in every}
    assert kinds >= {"DaskCluster", "DaskJob", "DaskAutoscaler", "CronJob", "NetworkPolicy"}
    for one in every:
        validate(one)
        assert one["metadata"].get("namespace", "dbern") == "dbern"


@pytest.mark.parametrize("kind", ["CronJob", "NetworkPolicy", "DaskCluster", "DaskAutoscaler"])
def test_a_misspelt_key_is_found(kind):
    one = deepcopy(next(iter(of_kind(kind).values())))
    one["spec"]["misspelt"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validate(one)


def test_every_pod_is_confined_and_holds_no_secret():
    seen = dict(pods())
    assert len(seen) == 6 + 1 + 2 * 2
    for name, pod in seen.items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        for one in spec["containers"]:
            assert one["image"] == OURS, name
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name  # fmt: skip
            assert "memory" in one["resources"]["limits"], name
            for variable in one.get("env", []):
                assert "valueFrom" not in variable, f"{name}: secrets are files"
            for source in one.get("envFrom", []):
                assert source == {"configMapRef": {"name": "objects", "optional": True}}, name
            mounted = {mount["name"] for mount in one["volumeMounts"]}
            assert mounted == {volume["name"] for volume in spec["volumes"]}, name
            data = [mount for mount in one["volumeMounts"] if mount["name"] == "data"]
            assert all(mount["readOnly"] for mount in data), name
        for volume in spec["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["defaultMode"] == 0o440, name
            if "emptyDir" in volume:
                assert volume["emptyDir"]["medium"] == "Memory", name
    assert not of_kind("Secret")


def test_only_what_releases_has_the_ledgers_secrets():
    holders = {
        name
        for name, pod in pods()
        for volume in pod["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") == "ledger"
    }
    assert holders == {"nightly", "year", "weekly", "backfill"}


def test_tls_everywhere_and_no_dashboard_anywhere():
    text = "".join(path.read_text() for path in [*MANIFESTS, DEPLOY / "compose.yaml"])
    assert "tcp://" not in re.sub(r"#.*", "", text)
    for name, pod in pods():
        (container,) = pod["spec"]["containers"]
        words = container["args"]
        if words[0] != "dask":
            continue
        assert "--no-dashboard" in words, name
        assert after(words, "--protocol") == "tls", name
        if words[1] == "worker":
            assert after(words, "--dashboard-address") == "127.0.0.1:8790", name
            (probe,) = (one for one in container["livenessProbe"]["exec"]["command"] if "/" in one)
            assert "'http://127.0.0.1:8790/health'" in probe, name
            given = {one["name"]: one.get("value", "") for one in container["env"]}
            assert given["DASK_SCHEDULER_ADDRESS"].startswith("tls://"), name
    for role in ("scheduler", "worker"):
        words = compose()["services"][role]["command"]
        assert {"--no-dashboard", "tls", "127.0.0.1:0"} <= set(words), role


_UNITS = {"Mi": 1 << 20, "MiB": 1 << 20, "Gi": 1 << 30, "GiB": 1 << 30, "m": 1 << 20, "g": 1 << 30}
_NANNY = 200 << 20  # the process that watches the worker: about 150 MiB


def size(text):
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()
    return int(number) * _UNITS[unit]


def test_the_memory_of_a_pod_fits_its_limit():
    """What lies on a tmpfs counts as the container's: a worker that trusts the limit is killed."""
    for name, pod in pods():
        (container,) = pod["spec"]["containers"]
        limit = size(container["resources"]["limits"]["memory"])
        (scratch,) = (volume["emptyDir"]["sizeLimit"] for volume in pod["spec"]["volumes"]
                      if "emptyDir" in volume)  # fmt: skip
        assert 4 * size(scratch) <= limit, name
        words = container["args"]
        if "--memory-limit" in words:
            worker = size(after(words, "--memory-limit"))
            assert worker + _NANNY + size(scratch) <= limit, name
    worker = compose()["services"]["worker"]
    (scratch,) = re.findall(r"size=(\w+)", worker["tmpfs"][0])
    given = size(after(worker["command"], "--memory-limit"))
    assert given + _NANNY + size(scratch) <= size(worker["mem_limit"])


def test_a_drained_node_takes_one_worker_at_a_time():
    (budget,) = of_kind("PodDisruptionBudget").values()
    labels = dict(pods())["dbern-worker"]["metadata"]["labels"]  # as the operator makes them
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert budget["spec"]["maxUnavailable"] == 1


def test_what_policies_name_are_the_ports_and_labels_that_pods_have():
    policies = of_kind("NetworkPolicy")
    assert policies["nothing"]["spec"] == {
        "podSelector": {}, "policyTypes": ["Ingress", "Egress"]
    }  # fmt: skip
    cluster = of_kind("DaskCluster")["dbern"]["spec"]
    labels = dict(pods())["dbern-worker"]["metadata"]["labels"]  # as the operator makes them
    assert labels["dask.org/component"] == "worker"
    words = cluster["worker"]["spec"]["containers"][0]["args"]
    ports = {int(after(words, flag)) for flag in ("--worker-port", "--nanny-port")}
    (rule,) = policies["workers"]["spec"]["ingress"]
    assert {rule["ports"][0]["port"], rule["ports"][0]["endPort"]} == ports
    services = {one["port"] for one in cluster["scheduler"]["service"]["ports"]}
    admitted = {one["ports"][0]["port"] for one in policies["scheduler"]["spec"]["ingress"]}
    assert services == admitted
    for one in of_kind("CronJob").values():
        pod = one["spec"]["jobTemplate"]["spec"]["template"]
        if "ledger-tls" in str(pod):
            assert pod["metadata"]["labels"]["dbern.role"] in ("client", "metrics")


STORE = [{
    "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "objects"}}}],
    "ports": [{"protocol": "TCP", "port": 9000}],
}]  # fmt: skip


def selects(policy, labels):
    chosen = policy["spec"]["podSelector"]
    rules = chosen.get("matchExpressions", [])
    assert {rule["operator"] for rule in rules} <= {"In"}
    return chosen.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(rule["key"]) in rule["values"] for rule in rules
    )


def ways_out(labels, policies):
    """What a pod may speak to, beside the names of the cluster: the sum of all that select it."""
    assert any(selects(one, labels) and "Egress" in one["spec"]["policyTypes"] for one in policies)
    found = [rule for one in policies if selects(one, labels)
             for rule in one["spec"].get("egress", [])]  # fmt: skip
    assert all(rule.get("to") and rule.get("ports") for rule in found)  # an empty one is the world
    return [rule for rule in found if "kube-system" not in str(rule)]


def test_pods_reach_the_store_and_nothing_else_outside():
    policies = list(of_kind("NetworkPolicy").values())
    assert wrong_ways(policies) == []
    for planted in ("store-of-workers", "store-of-clients"):
        without = [one for one in policies if one["metadata"]["name"] != planted]
        assert wrong_ways(without)  # a missing way
        wider = deepcopy(policies)
        one = next(one for one in wider if one["metadata"]["name"] == planted)
        one["spec"]["egress"].append(
            {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}
        )
        assert wrong_ways(wider)


def wrong_ways(policies):
    """Pods that lack a way to the store, or have one to anything else that is not ours."""
    found, seen = [], set()
    for name, pod in pods():
        stores = [one for one in pod["spec"]["containers"] if "envFrom" in one]
        labels = pod["metadata"]["labels"]
        role = labels.get("dbern.role", labels.get("dask.org/component"))
        seen.add(role)
        outside = [rule for rule in ways_out(labels, policies) if not ours(rule)]
        if outside != ([] if role in ("scheduler", "metrics") else STORE):
            found.append((name, outside))
        if bool(stores) is (role in ("scheduler", "metrics") or name == "budget"):
            found.append((name, "settings of the store"))
    assert seen == {"client", "query", "worker", "scheduler", "metrics"}
    return found


def ours(rule):
    """Whether it leads to pods of this namespace alone."""
    return all(set(one) == {"podSelector"} and one["podSelector"] for one in rule["to"])


def test_timers_cronjobs_and_compose_run_the_same_commands():
    cron = {name: one["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
            for name, one in of_kind("CronJob").items()}  # fmt: skip
    services = compose()["services"]
    for name in ("nightly", "year", "weekly"):
        unit = started(DEPLOY / "systemd" / f"dbern-{name}.service")
        assert unit[0].endswith("/dbern")
        bare = unit[1:]
        assert cron[name][1:-2] == bare
        assert cron[name][-2] == services[name]["command"][-2] == "--scheduler"
        assert services[name]["command"][1:-2] == bare
    unit = started(DEPLOY / "systemd" / "dbern-budget.service")
    assert [word for word in unit[1:] if "://" not in word] == [
        word for word in cron["budget"][1:] if "://" not in word
    ]
    unit = started(DEPLOY / "systemd" / "dbern-metrics.service")
    assert {word for word in unit if ".toml:" in word} <= set(cron["metrics"])
    assert started(DEPLOY / "systemd" / "dbern-scoring.service")[1:3] == cron["scoring"][1:3]
    assert services["scoring"]["command"] == cron["scoring"]


def started(unit):
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    return line.replace("%%", "%").split()


def test_scheduled_commands_are_understood(monkeypatch, capsys):
    """Each command's options exist: it gets past its parser, to a spec or a ledger that is not."""
    from dbern.cli import main as command_line
    from dbern.cli import releases
    from pipelines import score

    monkeypatch.setattr(releases, "_release_partitions", lambda *_: (0, []))
    units = (DEPLOY / "systemd").glob("dbern-*.service")
    commands = [started(unit) for unit in units if "@" not in unit.name]
    commands += [list(one["args"]) for name, pod in pods() for one in pod["spec"]["containers"]]
    scheduled = [words[1:] for words in commands if words[0] != "dask"]
    assert len(scheduled) == 13
    for words in scheduled:
        if words[0] == "catch-up":
            assert command_line.run([*words, "--since", "2001-01-01"]) == 0
        elif words[:2] == ["-m", "pipelines.score"]:
            assert score.main([*words[2:-1], "nowhere"]) == 2
        else:
            words[words.index("--ledger") + 1] = "sqlite:///none.db"
            assert command_line.run(words) == 4
    capsys.readouterr()


def test_dask_understands_the_commands_of_its_roles():
    from distributed.cli import dask_scheduler, dask_worker

    roles = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    found = [one["args"] for _, pod in pods() for one in pod["spec"]["containers"]]
    found += [one["command"] for one in compose()["services"].values() if "command" in one]
    understood = 0
    for program, role, *words in found:
        if program == "dask":
            roles[role].make_context(role, list(words))
            understood += 1
    assert understood == 6
    with pytest.raises(click.UsageError):
        dask_worker.main.make_context("worker", ["tls://a:1", "--no-dashbord"])


def test_the_compose_file_fits_the_specification_and_confines_all():
    content = compose()
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"image": "b", "comand": "c"}}}, schema)
    services = content["services"]
    assert {"scheduler", "worker", "nightly", "year", "scoring", "database", "objects"} <= set(
        services
    )
    for name, one in services.items():
        assert one["user"] == f"{USER}:{USER}", name
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in one["security_opt"], name
        assert "ports" not in one, f"{name} is open to the host's network"
        assert re.match(r"[a-z/]+:\d[\w.]*(@|$)", one["image"]), f"{name}: no version is named"
        assert set(one["networks"]) <= set(content["networks"]), name
        given = [secret["source"] if isinstance(secret, dict) else secret
                 for secret in one.get("secrets", [])]  # fmt: skip
        assert set(given) <= set(content["secrets"]), name
        for variable, value in one.get("environment", {}).items():
            secret = re.search("SECRET|PASSWORD|KEY|CREDENTIALS", variable)
            assert not secret or str(value).startswith(("/run/secrets/", "/staging")), variable
    assert all(network["internal"] for network in content["networks"].values())
    assert services["worker"]["networks"] == ["cluster"]  # and so knows no ledger
    assert all(set(secret) == {"file"} for secret in content["secrets"].values())


def test_the_composed_store_speaks_tls_and_whoever_uses_it_is_told_how():
    services = compose()["services"]
    store = services["objects"]
    assert "profiles" not in store  # it runs with the others
    port = store["environment"]["RUSTFS_ADDRESS"].rpartition(":")[2]
    address = f"https://objects:{port}"
    assert any(f"{address}/" in word for word in store["healthcheck"]["test"])
    folder = store["environment"]["RUSTFS_TLS_PATH"]
    mounted = [volume.split(":")[1] for volume in store["volumes"]]
    assert {f"{folder}/rustfs_cert.pem", f"{folder}/rustfs_key.pem"} <= set(mounted)
    assert store["environment"]["RUSTFS_CONSOLE_ENABLE"] == "false"
    jobs = ("nightly", "year", "weekly", "scoring", "bucket")
    users = dict.fromkeys((*jobs, "dbern"), "objects-client")
    users["worker"] = "objects-worker"
    told = {name for name, one in services.items()
            if "AWS_ENDPOINT_URL" in one.get("environment", {})}  # fmt: skip
    assert told == set(users)
    for name, secret in users.items():
        environment, one = services[name]["environment"], services[name]
        assert environment["AWS_ENDPOINT_URL"] == address, name
        assert {"source": secret, "target": "objects-credentials"} in one["secrets"], name
        assert environment["AWS_SHARED_CREDENTIALS_FILE"] == "/run/secrets/objects-credentials"
        assert any(f":{environment['AWS_CA_BUNDLE']}:ro" in volume for volume in one["volumes"])
        assert set(one["networks"]) & set(store["networks"]), name
    for name in jobs:
        assert services[name]["depends_on"]["objects"] == {"condition": "service_healthy"}, name


def test_the_image_has_two_stages_no_root_and_nothing_but_the_project():
    text = (DEPLOY / "Containerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    bases = [stage.splitlines()[0] for stage in stages]
    assert bases == [f"{bases[-1]} AS build", bases[-1]]
    assert bases[-1].startswith("python:3.11-slim@")
    last = stages[-1]
    assert f"USER {USER}:{USER}" in last
    assert last.index("USER ") > last.rindex("COPY")
    assert not re.search(r"pip install|apt-get|ENTRYPOINT", last)
    assert "--require-hashes --requirement requirements.txt" in stages[0]
    assert "--no-deps --no-build-isolation" in stages[0]  # and so nothing comes without a hash
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in ignored if not line.startswith("#")) == "*"
    admitted = {line[1:] for line in ignored if line.startswith("!")}
    for copied in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE):
        for source in copied.split():
            assert (ROOT / source).exists(), source
            assert source in admitted, source
    (extras,) = re.findall(r"'\.\[(.*?)\]'", stages[0])
    project = (ROOT / "pyproject.toml").read_text()
    for extra in extras.split(","):
        assert f"\n{extra} = [" in project, extra


OURS = "dbern:0.1.0"
"""The one image without a digest, which is known where it is built."""

PINNED_ACTION = re.compile(r"[\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
PINNED_IMAGE = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


def unpinned(path):
    """Actions without a commit and a version, and images of others without tag and digest."""
    text = path.read_text(encoding="utf-8")
    actions = re.findall(r"^[ -]*uses: *(.+?)$", text, re.MULTILINE)
    images = re.findall(r"^[ -]*(?:image:|FROM) *(\S+)", text, re.MULTILINE)
    loose = [one for one in actions if not PINNED_ACTION.fullmatch(one)]
    loose += [one for one in images if not PINNED_IMAGE.fullmatch(one)]
    return [one for one in loose if one != OURS and not one.startswith("./")]


def test_actions_and_images_of_others_are_pinned_by_commit_and_digest(tmp_path):
    workflows = list((ROOT / ".github" / "workflows").iterdir())
    every = [path for path in DEPLOY.rglob("*") if path.suffix in {".yaml", ".yml"}]
    assert len(workflows) >= 2 <= len(every)
    for path in [*workflows, *every, DEPLOY / "Containerfile"]:
        assert unpinned(path) == [], path
    loose = ["actions/checkout@v4", "actions/checkout@" + 40 * "0", "pypa/x@release/v1 # v1.0.0"]
    loose_images = ["postgres:17", "postgres@sha256:" + 64 * "0", "dbern:0.2.0", "a/b:1@sha256:00"]
    planted = tmp_path / "planted.yaml"
    planted.write_text("".join(f"      - uses: {one}\n" for one in loose)
                       + "".join(f"    image: {one}\n" for one in loose_images)
                       + "FROM python:3.11-slim AS build\n")  # fmt: skip
    assert unpinned(planted) == [*loose, *loose_images, "python:3.11-slim"]


def test_dask_settings_fit_dasks_schema_and_name_settings_that_exist():
    package = resources.files("distributed")
    schema = yaml.safe_load((package / "distributed-schema.yaml").read_text())
    known = yaml.safe_load((package / "distributed.yaml").read_text())
    content = loaded(DEPLOY / "dask.yaml")
    jsonschema.Draft7Validator(schema).validate(content)
    assert not unknown(content, known)
    assert unknown({"distributed": {"worker": {"memory": {"spil": False}}}}, known)
    memory = content["distributed"]["worker"]["memory"]
    assert memory["target"] is memory["spill"] is False
    assert content["distributed"]["comm"]["require-encryption"] is True


def unknown(content, known, place=()):
    if place[-1:] == ("pre-spawn-environ",):  # any variable may be set
        return []
    found = []
    for key, value in content.items():
        if key not in known:
            found.append((*place, key))
        elif isinstance(value, dict) and isinstance(known[key], dict):
            found += unknown(value, known[key], (*place, key))
    return found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_units_are_understood_and_confined(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    units = []
    for unit in (DEPLOY / "systemd").iterdir():
        text = re.sub(r"^ExecStart=\S+", f"ExecStart={program}", unit.read_text(), flags=re.M)
        units.append(tmp_path / unit.name)
        units[-1].write_text(text.replace("Documentation=file:/opt/dbern/RUNBOOK.md\n", ""))
    ran = analyze("verify", *units)
    assert (ran.returncode, ran.stderr) == (0, "")
    (tmp_path / "dbern-bad.service").write_text("[Service]\nExecStart=/nowhere\nTyp=oneshot\n")
    assert "Typ" in analyze("verify", tmp_path / "dbern-bad.service").stderr
    services = [unit for unit in units if unit.suffix == ".service" and "@" not in unit.name]
    assert len(services) == 6
    for service in services:
        ran = analyze("security", "--offline=true", "--threshold=20", service)
        assert ran.returncode == 0, ran.stdout[-200:]
        assert (tmp_path / f"{service.stem}.timer").exists()


def analyze(*arguments):
    environment = {**os.environ, "SYSTEMD_PAGER": "", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], env=environment, capture_output=True, text=True
    )


def test_slurm_jobs_are_workers_over_tls_that_never_spill(tmp_path):
    from deploy import certificates

    certificates.make_authority(tmp_path)
    shutil.copy(DEPLOY / "dask.yaml", tmp_path)
    role = certificates.issue(tmp_path, "slurm")
    code = (
        "import sys\nsys.path.insert(0, 'deploy/slurm')\nimport release\n"
        "given = release.arguments_of(['s.toml', '--queue', 'private', '--account', 'a'])\n"
        "with release.cluster_for(given) as cluster:\n"
        "    print(cluster.scheduler_address)\n    print(cluster.job_script())\n"
    )
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path), "PYTHONPATH": str(ROOT),
                   "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(role / "ca.pem")}  # fmt: skip
    for part in ("SCHEDULER", "WORKER", "CLIENT"):
        environment[f"DASK_DISTRIBUTED__COMM__TLS__{part}__CERT"] = str(role / "cert.pem")
        environment[f"DASK_DISTRIBUTED__COMM__TLS__{part}__KEY"] = str(role / "key.pem")
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    address, _, script = ran.stdout.partition("\n")
    assert address.startswith("tls://")
    for told in ("#SBATCH -p private", "#SBATCH -A a", "#SBATCH --mem=16G", "--nthreads 8",
                 f"export DASK_CONFIG={tmp_path}", "ulimit -c 0", "--local-directory /dev/shm",
                 f"--tls-ca-file {role}/ca.pem", f"--tls-key {role}/key.pem", "--no-dashboard",
                 "--dashboard-address 127.0.0.1:0", address):  # fmt: skip
        assert told in script, (told, script)
    assert "BEGIN" not in script  # files are named, keys are not
