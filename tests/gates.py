"""Rules on the shape of the code: sizes, types, words and first sentences.

A rule yields the violations of one module, each a key such as ``dbern.planning.planner.plan``. What
the code does not keep yet is in `allowed.json`, by rule and key with how often, and that only
shrinks: ``python -m gates`` prints what is new, ``python -m gates --shrink`` takes out what was
mended, and neither puts anything in.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

ALLOWED = Path(__file__).parent / "allowed.json"

MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_FIELDS = 12
WIDE_CLASSES = {  # what a spec or a store's metadata may say
    "dbern.planning.sections.DataSection",
    "dbern.synopsis.metadata.StoredCombination",
    "dbern.learn.kernel_erm.KernelERM",
}
UNTYPED_NAMES = {  # of variables that hold an object of an abstract class of ours
    *("contract", "learner", "statistic", "plan", "planned", "release", "spec", "strategy"),
    "synopsis",
}
FORBIDDEN_WORDS = {
    *("one", "found", "own", "told", "said", "kept", "asked", "given", "facts", "place"),
    *("places", "apart", "sure"),
}
PUBLIC_WORDS = {  # parameters and a property that users write, whose names are a promise
    ("dbern.ask.distribution", "given"),  # `mass(region, given=box)`: P(A given B)
    ("dbern.ask.distribution", "places"),  # `cdf(places)`, as `--cdf AXIS=PLACES`
    ("dbern.testing", "found"),  # `Search.found`
}
PUBLIC_CLASSES = {  # and functions that users or authors of learners meet, besides all `__all__`
    *(
        "Accumulator",
        "Answer",
        "Distribution",
        "Domain",
        "KernelSum",
        "Statistic",
        "Series",
        "Stream",
    ),
    "Regression",
    *("open_synopsis", "shape"),
}
SECTION = re.compile(r"^(Parameters|Returns|Raises|Attributes|Examples)\n-{3}", re.MULTILINE)
BAD_FIRST_WORDS = {"Of", "That", "Those", "What", "See", "How"}


ROOM_OF = {  # files of a folder that has several rooms, of different heights
    **dict.fromkeys(("dbern.nights.horizon", "dbern.nights.windows"), "horizon"),
    **dict.fromkeys(("dbern.nights.section", "dbern.nights.forecast"), "planning"),
    **dict.fromkeys(("dbern.nights.stream", "dbern.nights.series"), "synopsis"),
    **dict.fromkeys(
        ("dbern.nights.frozen_files", "dbern.nights.night", "dbern.nights.people"), "run"
    ),
    **{
        f"dbern.run.{name}": "cluster"
        for name in (
            "client",
            "connection",
            "graph",
            "messages",
            "partitions",
            "tasks",
            "threads",
            "workers",
        )
    },
}


def room_of(name: str) -> str:
    """Return the room of a module: the file or folder right below ``dbern``, or `ROOM_OF`'s."""
    return ROOM_OF.get(name) or [*name.split("."), ""][1]


@dataclass(frozen=True)
class Module:
    """A file of the package, parsed."""

    name: str
    path: Path
    text: str
    nodes: list[ast.AST]

    @property
    def unit(self) -> str:
        """Room that it belongs to."""
        return room_of(self.name)

    @cached_property
    def scopes(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        """Functions and classes with their full names."""

        def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
            for child in ast.iter_child_nodes(node):
                scope = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                name = f"{prefix}.{child.name}" if scope else prefix
                if scope:
                    yield name, child
                yield from below(child, name)

        return [*below(self.nodes[0], self.name)]


@lru_cache(maxsize=1000)  # the package is looked at by several tests
def _nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def read_modules(package: Path) -> list[Module]:
    """Parse every file of a package."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = ["dbern", *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name, path, text, _nodes_of(text)))
    return modules


def long_functions(module: Module) -> Iterator[str]:
    """Functions of more than 60 lines."""
    for name, node in module.scopes:
        if not isinstance(node, ast.ClassDef) and _lines(node) > MAX_FUNCTION_LINES:
            yield f"{name}: {_lines(node)} lines"


def many_parameters(module: Module) -> Iterator[str]:
    """Functions of more than six parameters.

    Not those whose parameters are what a user writes: commands, estimators and public functions;
    and not compiled loops, which take arrays alone.
    """
    estimators = module.unit == "sklearn"
    loops = module.name in ("dbern.measure.loops", "dbern.synopsis.evaluate")
    public = (
        "dbern.run.stages.release",
        "dbern.synopsis.opening.open_synopsis",
        "dbern.ledger.ledger.BudgetLedger.grant",
    )
    for name, node in module.scopes:
        if isinstance(node, ast.ClassDef) or loops or name in public:
            continue
        if _is_command(node) or (estimators and node.name == "__init__"):
            continue
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if len([name for name in names if name not in ("self", "cls")]) > MAX_PARAMETERS:
            yield name


def wide_classes(module: Module) -> Iterator[str]:
    """Classes of more than twelve fields, but for specs and what is stored."""
    for name, node in module.scopes:
        if name not in WIDE_CLASSES and len(list(_fields(node))) > MAX_FIELDS:
            yield name


def callable_fields(module: Module) -> Iterator[str]:
    """Fields that hold a function: a method of a type says what it is."""
    for name, node in module.scopes:
        for field in _fields(node):
            if "Callable" in ast.unparse(field.annotation):
                yield f"{name}.{ast.unparse(field.target)}"


def untyped_objects(module: Module, classes: Set[str]) -> Iterator[str]:
    """Parameters and fields of type Any that are named for a class of ours."""
    for name, node in module.scopes:
        annotated = [
            (field.target.id, field.annotation)
            for field in _fields(node)
            if isinstance(field.target, ast.Name)
        ]
        if not isinstance(node, ast.ClassDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            annotated += [(a.arg, a.annotation) for a in arguments if a.annotation]
        for variable, annotation in annotated:
            if ast.unparse(annotation) == "Any" and variable.lstrip("_") in classes:
                yield f"{name}({variable})"


def forbidden_words(module: Module) -> Iterator[str]:
    """Names bound to a pronoun or a participle, in functions, fields and arguments too.

    Not what users write, of which `PUBLIC_WORDS` is the list.
    """
    for node in module.nodes:
        public = isinstance(node, ast.arg | ast.FunctionDef)
        for name in _bound_names(node):
            if name.strip("_").lower() not in FORBIDDEN_WORDS:
                continue
            if not (public and (module.name, name) in PUBLIC_WORDS):
                yield module.name


def first_sentences(module: Module) -> Iterator[str]:
    """Docstrings that do not begin with a verb or a noun phrase, or send the reader elsewhere."""
    for node in (module.nodes[0], *(scope for _, scope in module.scopes)):
        first = (ast.get_docstring(node) or "").split("\n\n")[0]
        starts_badly = re.split(r"\W", first)[0] in BAD_FIRST_WORDS
        if starts_badly or re.search(r"top of (the|this) (module|file)", first):
            yield module.name


def internal_sections(module: Module, public: Set[str]) -> Iterator[str]:
    """Docstrings of internals that have sections: of these a sentence says what is not plain."""
    for name, node in module.scopes:
        outermost = name.removeprefix(f"{module.name}.").partition(".")[0]
        if outermost not in public and SECTION.search(ast.get_docstring(node) or ""):
            yield name


def public_names(modules: list[Module]) -> set[str]:
    """Return what users import, and the classes they meet by it."""
    names = set(PUBLIC_CLASSES)
    for module in modules:
        for node in ast.iter_child_nodes(module.nodes[0]):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names |= set(ast.literal_eval(node.value))
    return names


RULES: dict[str, Callable[[Module], Iterator[str]]] = {
    "long functions": long_functions,
    "many parameters": many_parameters,
    "wide classes": wide_classes,
    "callable fields": callable_fields,
    "forbidden words": forbidden_words,
    "first sentences": first_sentences,
}


def count_violations(package: Path) -> dict[str, dict[str, int]]:
    """Count the violations of each rule by key."""
    modules = read_modules(package)
    nodes = (node for module in modules for _, node in module.scopes)
    variables = {_snake_case(node.name) for node in nodes if isinstance(node, ast.ClassDef)}
    classes = UNTYPED_NAMES | {name for name in variables if "_" in name}
    counts = {
        rule: Counter(key for module in modules for key in check(module))
        for rule, check in RULES.items()
    }
    counts["untyped objects"] = Counter(
        key for module in modules for key in untyped_objects(module, classes)
    )
    public = public_names(modules)
    counts["internal sections"] = Counter(
        key for module in modules for key in internal_sections(module, public)
    )
    return {rule: dict(sorted(counter.items())) for rule, counter in counts.items()}


def read_allowed() -> dict[str, dict[str, int]]:
    """Read what the code does not keep yet."""
    return json.loads(ALLOWED.read_text(encoding="utf-8"))


def excess(
    counts: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return what is counted beyond what is allowed, by rule and key."""
    beyond = {
        rule: {
            key: count - allowed.get(rule, {}).get(key, 0)
            for key, count in keys.items()
            if count > allowed.get(rule, {}).get(key, 0)
        }
        for rule, keys in counts.items()
    }
    return {rule: keys for rule, keys in beyond.items() if keys}


def shrunk(
    counts: dict[str, dict[str, int]], allowed: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the part of what is allowed that is still needed."""
    return {
        rule: {key: min(n, counts[rule][key]) for key, n in keys.items() if key in counts[rule]}
        for rule, keys in allowed.items()
        if rule in counts
    }


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return "click" in decorators or "command" in decorators


def _fields(node: ast.AST) -> Iterator[ast.AnnAssign]:
    if isinstance(node, ast.ClassDef):
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign):
                continue
            if "ClassVar" not in ast.unparse(statement.annotation):
                yield statement


def _bound_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        name = node.asname if isinstance(node, ast.alias) else node.name
        if name:
            yield name


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("_")).lower()


def main() -> None:
    """Print what breaks a rule and is not allowed; with ``--shrink`` take out what was mended."""
    counts = count_violations(Path(__file__).parents[1] / "dbern")
    allowed = read_allowed()
    if "--shrink" in sys.argv:
        allowed = shrunk(counts, allowed)
        ALLOWED.write_text(json.dumps(allowed, indent=1) + "\n", encoding="utf-8")
    for rule, keys in excess(counts, allowed).items():
        for key, count in keys.items():
            print(f"{rule}: {key} ({count} more than allowed)")
    print({rule: sum(keys.values()) for rule, keys in counts.items()})


if __name__ == "__main__":
    main()
