"""Print the oldest version of each package that ``pyproject.toml`` allows, as pip's constraints."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement


def oldest(project: dict[str, object], extras: tuple[str, ...]) -> list[str]:
    """Pins of the dependencies and of some extras.

    Examples
    --------
    >>> oldest({"dependencies": ["a>=1.2"], "optional-dependencies": {"x": ["b[y]>=3"]}}, ("x",))
    ['a==1.2', 'b==3']
    """
    wanted = list(project["dependencies"])  # type: ignore[call-overload]  # as pyproject.toml has it
    for extra in extras:
        wanted += project["optional-dependencies"][extra]  # type: ignore[index]
    pins = []
    for one in map(Requirement, wanted):
        (least,) = one.specifier
        pins.append(f"{one.name}=={least.version}")
    return pins


if __name__ == "__main__":
    content = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    print("\n".join(oldest(content["project"], ("postgres", "report", "s3"))))
