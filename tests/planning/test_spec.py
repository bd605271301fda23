"""Valid specs survive every trip; every wrong key is named with what to write instead."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import sections, spec_sections, toml

from dbern.errors import SpecError
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import exact


@pytest.mark.slow
@given(content=spec_sections())
@settings(max_examples=40)
def test_toml_and_keywords_give_the_same_spec(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "release.toml"
    path.write_text(toml(content), encoding="utf-8")
    loaded, built = ReleaseSpec.load(path), ReleaseSpec(**copy.deepcopy(content))
    assert loaded.model_dump() == built.model_dump()
    assert loaded.identity() == built.identity()
    for name in ("domain", "learner", "charge", "beta", "protection"):
        assert getattr(loaded, name) == getattr(built, name)
    assert list(loaded.domain.names) == list(content["data"]["bounds"])
    assert loaded.base == path.resolve().parent
    again = ReleaseSpec(**built.model_dump(exclude_none=True))
    assert again.model_dump() == built.model_dump()
    back = pickle.loads(pickle.dumps(built))
    assert back.identity() == built.identity()


@pytest.mark.slow
@given(content=spec_sections())
@settings(max_examples=8)
def test_plans_are_a_function_of_the_spec(content):
    def planned():
        spec = ReleaseSpec(**copy.deepcopy(content))
        try:
            return plan_files(spec, ()).to_dict()
        except SpecError as error:  # settings that fit no sketch or granularity, by name
            return str(error)

    assert planned() == planned()


def test_relative_paths_start_from_the_file(tmp_path):
    (tmp_path / "spec.toml").write_text(toml(sections()))
    spec = ReleaseSpec.load(tmp_path / "spec.toml")
    assert spec.source == str(tmp_path / "data/*.parquet")
    assert spec.output == str(tmp_path / "out/demo.zarr")
    absolute = sections(release={"output": "/srv/x.zarr"}, data={"source": "/srv/d"})
    (tmp_path / "spec.toml").write_text(toml(absolute))
    spec = ReleaseSpec.load(tmp_path / "spec.toml")
    assert (spec.source, spec.output) == ("/srv/d", "/srv/x.zarr")


def test_identity_leaves_out_what_may_change_between_tries():
    spec = ReleaseSpec(**sections())
    same = ReleaseSpec(**sections(release={"output": "elsewhere"}, mechanism={"h": 9},
                                  budget={"ledger": "sqlite:///moved.db"}))  # fmt: skip
    assert spec.identity() == same.identity()
    for change in (
        {"release": {"name": "other"}}, {"data": {"n": 7}}, {"data": {"outside": "clamp"}},
        {"target": {"bandwidth": [0.2]}}, {"mechanism": {"k": 19}}, {"budget": {"epsilon": "2"}},
        {"mechanism": {"calibration": "paper"}}, {"budget": {"dataset": "other"}},
        {"data": {"bounds": {"x": [0.0, 2.0]}}},
    ):  # fmt: skip
        assert ReleaseSpec(**sections(**change)).identity() != spec.identity(), change


def test_per_axis_values():
    two = {"bounds": {"x": [0, 1], "y": [0, 1]}}
    spec = ReleaseSpec(**sections(data=two, target={"bandwidth": [0.1, 0.2]},
                                  mechanism={"k": [3, 4], "h": "auto"}))  # fmt: skip
    assert (spec.per_axis("k"), spec.per_axis("h")) == ((3, 4), None)
    assert ReleaseSpec(**sections(mechanism={"k": 7})).per_axis("k") == (7,)


NAN, INF = float("nan"), float("inf")
LATER = "not available in this version"
WRONG = [  # key, value (None: missing), and a part of what is said of the key
    ("release.name", None, "is missing. Write name ="),
    ("release.name", "a b", "write name ="),
    ("release.name", "../up", "write name ="),
    ("release.name", "", "write name ="),
    ("release.name", 7, "write name ="),
    ("release.output", None, "is missing. Write output ="),
    ("release.output", "gs://bucket/x", "s3://bucket/name"),
    ("release.output", "s3://KEY:PASS@bucket/x", "environment alone"),
    ("release.output", "s3://bucket", "Write s3://bucket/name"),
    ("release.nmae", "x", "unknown key. Write name"),
    ("release.output", "", "is empty. Write output ="),
    ("budget.ledger", " ", "is empty. Write ledger ="),
    ("budget.dataset", "", "is empty. Write dataset ="),
    ("data.source", "", "is empty, which would be every file"),
    ("data.source", " \t\n", 'write source = "data/trips/*.parquet"'),
    ("release.output", "a\x00b.zarr", "no path and no name holds a NUL"),
    ("data.source", "a\x00b/*.parquet", "no path and no name holds a NUL"),
    ("budget.ledger", "sqlite:///\x00.db", "no path and no name holds a NUL"),
    ("data.source", "https://bucket/x?X-Amz-Signature=PASS", "s3://bucket/name"),
    ("data.source", "s3://bucket/x?secret=PASS", "environment alone"),
    ("data.bounds", None, "is missing. Write [data.bounds]"),
    ("data.bounds", {}, "write [data.bounds]"),
    ("data.n", 0, "write n ="),
    ("data.n", -5, "write n ="),
    ("data.n", 10.0, "write n ="),
    ("data.n", "10", "write n ="),
    ("data.n", True, "write n ="),
    ("data.unit", "user", 'write unit = "row"'),
    ("data.unit", {"column": "u", "max_contributions": 0}, "write unit = {"),
    ("data.neighbors", "replace", "write neighbors ="),
    ("data.normalizer", "1000", "write n = 2000000, or neither"),
    ("data.outside", "wrap", 'write outside = "drop" or "clamp"'),
    ("data.label", {"column": "l", "classes": [1, 2]}, "has no use for it"),
    ("data.response", {"column": "l", "bounds": [0, 1]}, "has no use for it"),
    ("data.sources", "x", "unknown key. Write source"),
    ("target.kind", None, "is missing. Write kind ="),
    ("target.kind", "kernel-densty", 'write kind = "kernel-density"'),
    ("target.kind", "xyzzy", "is unknown. Write kind ="),
    ("target.kind", "support-vector-machin", "support-vector-machine"),
    ("target.kernel", "Laplace", "is unknown. Write kernel = "),
    ("target.kernel", "uniform", "is unknown. Write kernel = "),
    ("target.bandwidth", None, "is missing. Write bandwidth ="),
    ("target.bandwidth", [0.0], "must be above 0. Write bandwidth = [0.5, 0.5]"),
    ("target.bandwidth", [-1.0], "write bandwidth = [0.5, 0.5]"),
    ("target.bandwidth", [NAN], "must be finite. Write bandwidth = [0.5, 0.5]"),
    ("target.bandwidth", [INF], "must be finite. Write bandwidth = [0.5, 0.5]"),
    ("target.width", 0.1, "unknown key. Write one of: bandwidth, covariance,"),
    ("target.bandwidth", [0.1, 0.1], "write one for each of x"),
    ("target.bandwidth", [], "write one for each of x"),
    ("target.bandwidth", 0.1, "write bandwidth = [0.5, 0.5]"),
    ("target.bandwidth", ["0.1"], "write bandwidth = [0.5, 0.5]"),
    ("data.bounds", {}, "has too few entries. Write [data.bounds] with one line"),
    ("target.covariance", [[1.0]], "stands for bandwidth. Leave one"),
    ("target.bandwith", [0.1], "unknown key. Write bandwidth"),
    ("mechanism.k", 0, 'write k = "auto"'),
    ("mechanism.k", -3, 'write k = "auto"'),
    ("mechanism.k", 20.0, 'write k = "auto"'),
    ("mechanism.k", "20", 'write k = "auto"'),
    ("mechanism.k", [0], 'write k = "auto"'),
    ("mechanism.k", 1001, LATER),
    ("mechanism.h", 10_001, LATER),
    ("mechanism.k", [20, 20], "write one for each of x"),
    ("mechanism.k", [], "write one for each of x"),
    ("mechanism.h", 0, 'write h = "auto"'),
    ("mechanism.h", [1, 2], "write one for each of x"),
    ("mechanism.noise", "gaussian", 'write noise = "auto"'),
    ("mechanism.calibration", "loose", "write calibration ="),
    ("mechanism.beta", "0", 'write beta = "0.05"'),
    ("mechanism.beta", "1", 'write beta = "0.05"'),
    ("mechanism.beta", 0.05, "write beta ="),
    ("mechanism.beta", "nan", "write beta ="),
    ("mechanism.objective", "best", "write objective ="),
    ("mechanism.reference", 7, "write reference ="),
    ("mechanism.noize", "x", "unknown key. Write noise"),
    ("budget.epsilon", None, "is missing. Write epsilon ="),
    ("budget.epsilon", "0", 'write epsilon = "1.0"'),
    ("budget.epsilon", "-1", 'write epsilon = "1.0"'),
    ("budget.epsilon", 1.0, "write epsilon ="),
    ("budget.epsilon", 1, "write epsilon ="),
    ("budget.epsilon", "inf", "write epsilon ="),
    ("budget.epsilon", "nan", "write epsilon ="),
    ("budget.epsilon", "1/0", "write a decimal"),
    ("budget.epsilon", "1" * 5000, "too many digits. Write a decimal"),
    ("mechanism.beta", "0." + "1" * 5000, "too many digits. Write a decimal"),
    ("budget.epsilon", "", "write epsilon ="),
    ("budget.delta", "-1", "write delta ="),
    ("budget.delta", 0.0, "write delta ="),
    ("budget.ledger", None, "is missing. Write ledger ="),
    ("budget.dataset", None, "is missing. Write dataset ="),
    ("budget.datasets", "x", "unknown key. Write dataset"),
    ("budget.beta", "0.1", "is a key of [mechanism]. Write it there"),
    ("mechanism.tune", "0.02", "is no key. Leave it out: bands about these data"),
]
NAMED = [  # the same, and the key that the message names
    *(  # names that no store can hold
        ("data.bounds", {name: [0.0, 1.0]}, f"data.bounds.{name}", "Rename the column")
        for name in ("binned", "coefficients", "spectral", "zarr.json", "..", "a/b", "__x", "")
    ),
    ("data.bounds", {"x": [1.0, 0.0]}, "data.bounds.x", "Write x = [low, high]"),
    ("data.bounds", {"x": [NAN, 1.0]}, "data.bounds.x", "Write x = [0.0, 1.0]"),
    ("data.bounds", {"x": [0.0, INF]}, "data.bounds.x", "Write x = [0.0, 1.0]"),
    ("data.bounds", {"x": [0.0]}, "data.bounds.x", "write [data.bounds]"),
    ("data.bounds", {"x": [0.0, 1.0, 2.0]}, "data.bounds.x", "write [data.bounds]"),
    ("data.bounds", {"x": ["0", "1"]}, "data.bounds.x", "write [data.bounds]"),
    ("data.bounds", {"x": 1.0}, "data.bounds.x", "write [data.bounds]"),
    ("data.unit", {"column": "u", "max_contributions": 2}, "data.n", "write in its place"),
    ("data.neighbors", "add-or-remove-one", "data.n", "write in its place normalizer ="),
    ("data.label", {"column": "l"}, "data.label.classes", "is missing. Write classes ="),
    ("data.label", {"column": "l", "classes": [1]}, "data.label.classes", "write classes ="),
    ("data.response", {"column": "l"}, "data.response.bounds", "is missing. Write bounds ="),
    ("data.response", {"column": "l", "bounds": [1, 0]}, "data.response.bounds", "Write"),
    ("data.response", {"column": "l", "bounds": [0, INF]}, "data.response.bounds", "Write"),
    ("data.response", {"column": "l", "bounds": [0, 5e-324]}, "data.response.bounds", "Write"),
    ("data.response", {"column": "x", "bounds": [0, 1]}, "data", '"x" has two roles'),
    ("data.group", {"column": "l"}, "data.group.values", "is missing. Write values ="),
    ("data.group", {"column": "l", "values": ["a", "a"]}, "data.group.values", "twice"),
    ("data.group", {"column": "l", "values": [0.5]}, "data.group.values", "write values ="),
]


@pytest.mark.parametrize(
    ("key", "value", "named", "part"),
    [*((key, value, key, part) for key, value, part in WRONG), *NAMED],
)
def test_a_wrong_key_is_named_with_what_to_write(key, value, named, part):
    section, key = key.split(".", 1)
    with pytest.raises(SpecError) as refusal:
        ReleaseSpec(**sections(**{section: {key: value}}))
    message, wanted = str(refusal.value), part.lower().replace("; ", ". ")
    said = [line for line in message.splitlines() if line.startswith(f"{named}: ")]
    assert any(
        wanted in line.lower().replace("; ", ". ") for line in said
    )  # as a sentence or a clause
    assert refusal.value.exit_code == 2
    assert "pydantic" not in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({section: None}, rf"^{section}: is missing[.;] write \[{section}\] with ")
            for section in ("release", "data", "target", "budget")
        ),
        *(({"data": value}, r"^data: .*write \[data\] with ") for value in ("text", 3, ["a"])),
        ({"mechanisms": {}}, r"^mechanisms: unknown key[.;] write mechanism"),
    ],
)
def test_a_wrong_section_is_named_with_what_to_write(changes, message):
    content = {**sections(), **changes}
    given = {name: section for name, section in content.items() if section is not None}
    with pytest.raises(SpecError, match=f"(?im){message}"):
        ReleaseSpec(**given)


def test_the_mechanism_may_be_left_out():
    content = sections()
    del content["mechanism"]
    assert ReleaseSpec(**content).per_axis("k") is None


def test_all_wrong_keys_are_named_at_once():
    wrong = sections(release={"name": None}, data={"n": 0}, budget={"epsilon": 1.0})
    with pytest.raises(SpecError) as refusal:
        ReleaseSpec(**wrong)
    keys = [line.split(":")[0] for line in str(refusal.value).splitlines()]
    assert sorted(keys) == ["budget.epsilon", "data.n", "release.name"]


@pytest.mark.slow
@given(content=spec_sections(), data=st.data())
def test_any_key_misspelt_is_refused_by_name(content, data):
    section = data.draw(st.sampled_from(sorted(content)))
    key = data.draw(st.sampled_from(sorted(content[section])))
    content[section][key + "q"] = content[section].pop(key)
    with pytest.raises(
        SpecError, match=rf"(?m)^{section}\.{key}q: unknown key|^{section}\.{key}: "
    ):
        ReleaseSpec(**content)


UNREADABLE = {
    "absent": (None, "no such spec"),
    "no TOML": ("[release\n", r"release\.toml: cannot be read as TOML"),
    "bytes": (b"\xff\xfe\x00", "cannot be read as TOML"),
    "digits": ("extra = " + "1" * 5_000, "cannot be read as TOML"),
    "lists": ("extra = " + "[" * 10_000 + "]" * 10_000, "is nested too deeply. Write"),
    "tables": ("[target." + ".".join(["a"] * 10_000) + "]\nx = 1", "is nested too deeply. Write"),
    "inline tables": (
        "extra = " + "{a = " * 10_000 + "1" + "}" * 10_000, "is nested too deeply. Write",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, kind):
    content, message = UNREADABLE[kind]
    path = tmp_path / "release.toml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SpecError, match=message) as refusal:
        ReleaseSpec.load(path)
    assert str(path) in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_folder_is_no_spec(tmp_path):
    with pytest.raises(SpecError, match="cannot be read as TOML"):
        ReleaseSpec.load(tmp_path)


PARTITIONED = sections(
    release={"name": "trips-{partition}", "output": "out/{partition}/{partition}.zarr"},
    data={"source": "data/day={partition}/*.parquet"},
)


def test_partitions_fill_names_and_paths(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(toml(PARTITIONED))
    spec = ReleaseSpec.load(path, partition="2026-11-20")
    assert spec.release.name == "trips-2026-11-20"
    assert spec.output == str(tmp_path / "out/2026-11-20/2026-11-20.zarr")
    assert spec.source == str(tmp_path / "data/day=2026-11-20/*.parquet")


@pytest.mark.parametrize(
    ("text", "partition", "message"),
    [
        # Partitions that could name another folder.
        *((toml(PARTITIONED), partition, r"^--partition: .*Write --partition")
          for partition in ("", "a/b", "..", "a b", "{partition}", "*")),
        # Partition and spec must agree.
        (toml(PARTITIONED), None, r"^release\.name: contains \{partition\}. Write --part"),
        (toml(sections()), "p1", r"^--partition: the spec has no \{partition\}. Write it"),
        ("release = 3\n", None, r"(?m)^release: "),
    ],
)  # fmt: skip
def test_a_partition_that_fits_no_spec_is_refused(tmp_path, text, partition, message):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        ReleaseSpec.load(path, partition=partition)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("9" * 5_000, "too many digits"),
        ("1/" + "9" * 5_000, "too many digits"),
        ("\u0661.\u0660", "must be an exact decimal"),
        ("1\u0660", "must be an exact decimal"),
    ],
)
def test_numbers_are_of_digits_that_everybody_reads_and_of_few(text, told):
    """Python reads no more than 4300, and digits of every script: 1 and one of them is ten."""
    with pytest.raises(SpecError, match=told):
        exact(text, "budget.epsilon")
