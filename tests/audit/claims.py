"""The claims of ``docs/audit.md`` as data, and the page's tables made of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/audit.md"

TRUSTED = {
    "contract": "what a statistic promises, and the law that is made of it",
    "budget": "epsilon and delta as exact numbers; neighbours and units",
    "noise_law": "the interface of a law that noise is drawn of",
    "laws": "ours, Laplace, K-norm and Gaussian: their parameters, guarantees and draws",
    "calibration": "from a sensitivity to their scales",
    "advanced": "the paper's noise for a delta, by advanced composition",
    "zcdp": "from the discrete Gaussian to delta, and back",
    "curves": "the same by the exact curve of the normal law",
    "laplace": "the exact samplers of the Laplace and the K-norm law; how noise is added",
    "gaussian": "the exact discrete Gaussian sampler",
    "perturbation": "the random linear term of a perturbed objective, and what it costs",
    "keystream": "keys, the key stream, and keyed hashes of content",
    "mechanism": "rounding to the grid, and noise as a function of key and position",
    "__init__": "",
}
BEYOND = {
    "run/publish": "the noise key, bound to seal and law; the choice of a bandwidth among what was "
    "counted",
    "ledger/keys": "release keys: made, read, destroyed",
    "ledger/staging": "the staged center: encrypted, sealed, compared",
    "erm/perturbed": "perturbed objectives: what b and the Jacobian cost, b's key, the output",
    "erm/objective": "their minimizer, and how far from it whatever is computed may be",
    "erm/solver": "the certificate of every solve, and plain steps as the proof that there is one",
    "erm/losses": "losses: slopes and curvatures, on which all of that depends",
    "nights/section": "the nodes of a stream: one of each level holds a row, each has one name",
    "nights/frozen_files": "a night's files: of no other night, and as they were when it closed",
    "nights/night": "what pays for a node, and which nodes are due",
    "nights/people": "that nobody counts in more nights of a stream than it says",
    "data/columns": "`ids_as`: in which form ids of units are compared",
    "data/footers": "`read_footers`: that all files have the types that were planned for",
    "measure/unit_bounding": "that rows of a unit beyond its bound are left out",
    "nights/horizon": "which nodes of a stream hold a night",
    "ledger/accounts": "that what is charged is covered by what was granted, and "
    "`require_paid`: that a node is free only where its stream was charged",
    "ledger/guards": "what the ledger's database refuses to change, whoever writes to it",
}
MOST_LINES = 2000
APART = (  # no release rests on these: with Gaussian noise, by advanced composition, without delta
    {"perturbation", "advanced"}, {"perturbation", "gaussian", "curves"},
    {"gaussian", "curves", "advanced"},
)  # fmt: skip
NOT_TRUSTED = {
    *("tails", "covariance", "simulation", "error_law", "public_numbers", "families"),
    "sums",
}


@dataclass(frozen=True)
class Claim:
    """One row of the page; `old`, in `file`, is the line that relies on what is proved."""

    name: str
    statement: str
    proof: str
    file: str
    old: str
    new: str
    test: str

    def mutated(self, text: str) -> str:
        """A file's text with the mutation planted."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


def claims() -> list[Claim]:
    content = tomllib.loads((ROOT / "tests/audit/mutations.toml").read_text(encoding="utf-8"))
    return [Claim(**one) for one in content["claim"]]


def trusted_lines() -> dict[str, int]:
    return {name: _lines(f"privacy/{name}") for name in TRUSTED}


def base_table() -> str:
    return _files_table({f"privacy/{name}": text for name, text in TRUSTED.items()})


def beyond_table() -> str:
    return _files_table(BEYOND)


def _files_table(files: dict[str, str]) -> str:
    rows = [f"| `dbern/{name}.py` | {_lines(name)} | {text} |" for name, text in files.items()]
    head = ["| file | lines | what it is |", "|---|---:|---|"]
    return "\n".join([*head, *rows, f"| together | {sum(map(_lines, files))} | |"])


def _lines(name: str) -> int:
    return len((ROOT / f"dbern/{name}.py").read_text(encoding="utf-8").splitlines())


def claims_table() -> str:
    head = ["| | claim | statement | proved in | line that relies on it, and its mutation | test |",
            "|---:|---|---|---|---|---|"]  # fmt: skip
    return "\n".join([*head, *(_row(i + 1, claim) for i, claim in enumerate(claims()))])


def _row(number: int, claim: Claim) -> str:
    old, new = (part.strip().replace("|", "\\|") for part in (claim.old, claim.new))
    statement = claim.statement.replace("|", "\\|")
    file, _, symbol = claim.proof.partition(": ")
    proof = f"`{file}`" + (f", {symbol}" if symbol else "")
    changed = f"`{claim.file}`: `{old}` becomes `{new}`"
    return f"| {number} | {claim.name} | {statement} | {proof} | {changed} | `{claim.test}` |"


def page(text: str) -> str:
    """The page with its tables as they should be, between their markers."""
    tables = {"base": base_table(), "beyond": beyond_table(), "claims": claims_table()}
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = before + begin + table + "\n" + end + rest.split(end)[1]
    return text
