"""Dependencies: every file is locked by its hash, every licence is listed."""

import importlib.metadata
import importlib.util
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PAGE = (ROOT / "docs" / "licences.md").read_text("utf-8")
OURS = {"polyseme", "polyseme-experiments"}


def entries() -> dict[str, list[str]]:
    """Return the blocks of the lock, one or more for each package."""
    blocks_by_name: dict[str, list[str]] = {}
    _, _, text = LOCK.partition("\n")
    for block in re.split(r"(?m)^(?=[a-z0-9])", text):
        if block:
            name = block.partition("==")[0]
            blocks_by_name.setdefault(name, []).append(block)
    return blocks_by_name


def requirements_of(file: str) -> dict[str, list[Requirement]]:
    """Return the requirements of one of the two packages, by extra."""
    content = tomllib.loads((ROOT / file).read_text("utf-8"))
    texts_by_extra = content["project"]["optional-dependencies"]
    texts_by_extra[""] = content["project"]["dependencies"]
    texts_by_extra["build"] = content["build-system"]["requires"]
    return {extra: list(map(Requirement, texts)) for extra, texts in texts_by_extra.items()}


def required_by(requirement: Requirement) -> list[Requirement]:
    """Return what a required package requires, as far as it is installed here."""
    try:
        texts = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    environments = [{"extra": extra} for extra in ("", *requirement.extras)]
    required = []
    for dependency in map(Requirement, texts):
        marker = dependency.marker
        if marker is None or any(map(marker.evaluate, environments)):
            required.append(dependency)
    return required


def all_required_names(requirements: list[Requirement]) -> set[str]:
    """Return the names of all required packages and of what they require."""
    pending = list(requirements)
    visited = set()
    names = set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        key = (name, *requirement.extras)
        if key not in visited and name not in OURS:
            visited.add(key)
            names.add(name)
            pending += required_by(requirement)
    return names


@pytest.fixture(scope="module")
def licence_script():
    """The script that writes the page of licences."""
    spec = importlib.util.spec_from_file_location("licences", ROOT / "deploy" / "licences.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_every_locked_package_has_a_version_and_hashes_and_names_no_index():
    entry = r"[a-z0-9-]+==\S+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert len(entries()) > 200
    for blocks in entries().values():
        for block in blocks:
            assert re.fullmatch(entry, block), block[:100]
    assert "://" not in LOCK


def test_the_lock_has_the_versions_of_the_constraints():
    pins = re.findall(r"(?m)^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"))
    assert len(pins) > 40
    blocks_by_name = entries()
    for name, version in pins:
        canonical_name = canonicalize_name(name)
        (block,) = blocks_by_name[canonical_name]
        assert block.startswith(f"{canonical_name}=={version} ")


def test_all_requirements_of_development_are_locked():
    core = requirements_of("pyproject.toml")
    requirements = requirements_of("experiments/pyproject.toml")[""]
    features = "frames arff plots image lite2 audio heic aac ray serve ray-serve"
    tools = "test lint docs bench"
    for extra in ("", "build", *features.split(), *tools.split()):
        requirements += core[extra]
    assert all_required_names(requirements) - set(entries()) == set()


def test_every_dependency_of_every_extra_has_its_licence_on_the_page():
    listed = set(re.findall(r"(?m)^\| ([a-z0-9-]+) \| \S", PAGE))
    for file in ("pyproject.toml", "experiments/pyproject.toml"):
        requirements = list(chain.from_iterable(requirements_of(file).values()))
        assert all_required_names(requirements) - listed == set(), "run make licences"
    assert set(entries()) - listed == set(), "run make licences"


def test_the_page_states_the_licences_that_the_installed_packages_state(licence_script):
    n_compared = 0
    rows = re.findall(r"(?m)^\| ([a-z0-9-]+) \| ([^|;]+?)(?:;[^|]*)? \|", PAGE)
    for name, licence in rows:
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if f"{name}=={installed.version} " in "".join(entries().get(name, ())):
            assert licence_script.licence(installed.metadata.json) == licence, name
            n_compared += 1
    if not n_compared:
        pytest.skip("none of the locked versions is installed")


@pytest.mark.parametrize(
    ("licence", "mark"),
    [
        ("LGPL-2.1-or-later", "**weak**"),
        ("MPL-2.0 AND MIT", "**weak**"),
        ("GPL-2.0", "**strong**"),
        ("AGPL-3.0-only", "**strong**"),
        ("BSD; its wheels carry GCC's runtime, GPL-3.0 with its exception", ""),
        ("MIT", ""),
    ],
)
def test_copyleft_licences_are_marked(licence_script, licence, mark):
    assert licence_script.copyleft(licence) == mark
