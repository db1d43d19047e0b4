"""What polyseme asks for: every file locked by its hash, every licence listed."""

import importlib.metadata
import importlib.util
import re
import tomllib
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
    found: dict[str, list[str]] = {}
    for block in re.split(r"(?m)^(?=[a-z0-9])", LOCK.partition("\n")[2]):
        if block:
            found.setdefault(block.partition("==")[0], []).append(block)
    return found


def declared(which: str) -> dict[str, list[Requirement]]:
    """Return what one of the two packages asks for, by extra."""
    project = tomllib.loads((ROOT / which).read_text("utf-8"))
    asked = {"": project["project"]["dependencies"], "build": project["build-system"]["requires"]}
    asked |= project["project"]["optional-dependencies"]
    return {extra: [Requirement(text) for text in texts] for extra, texts in asked.items()}


def reached(start: list[Requirement]) -> set[str]:
    """Return the names of all that is asked for, as far as it is installed here."""
    todo, done, names = list(start), set(), set()
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if (name, *asked.extras) in done or name in OURS:
            continue
        done.add((name, *asked.extras))
        names.add(name)
        try:
            texts = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for one in map(Requirement, texts):
            extras = asked.extras | {""}
            if one.marker is None or any(one.marker.evaluate({"extra": each}) for each in extras):
                todo.append(one)
    return names


@pytest.fixture(scope="module")
def page():
    """Return the script that makes the page."""
    spec = importlib.util.spec_from_file_location("licences", ROOT / "deploy" / "licences.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_every_locked_package_has_a_version_and_hashes_and_names_no_index():
    assert len(entries()) > 200
    for blocks in entries().values():
        for block in blocks:
            assert re.fullmatch(
                r"[a-z0-9-]+==\S+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n", block
            ), block[:100]
    assert "://" not in LOCK


def test_the_lock_has_the_versions_of_the_constraints():
    pins = re.findall(r"(?m)^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"))
    assert len(pins) > 40
    for name, version in pins:
        blocks = entries()[canonicalize_name(name)]
        assert [block.split()[0] for block in blocks] == [f"{canonicalize_name(name)}=={version}"]


def test_all_that_development_asks_for_is_locked():
    core, experiments = declared("pyproject.toml"), declared("experiments/pyproject.toml")
    made_of = ("frames", "arff", "plots", "image", "lite2", "audio", "heic", "aac", "ray", "serve")
    extras = ("", "build", *made_of, "ray-serve", "test", "lint", "docs", "bench")
    asked = [one for extra in extras for one in core[extra]] + experiments[""]
    assert reached(asked) - set(entries()) == set()


def test_every_dependency_of_every_extra_has_its_licence_on_the_page():
    listed = set(re.findall(r"(?m)^\| ([a-z0-9-]+) \| \S", PAGE))
    for which in ("pyproject.toml", "experiments/pyproject.toml"):
        asked = [one for texts in declared(which).values() for one in texts]
        assert reached(asked) - listed == set(), "run make licences"
    assert set(entries()) - listed == set(), "run make licences"


def test_the_page_states_the_licences_that_the_installed_packages_state(page):
    compared = 0
    for name, stated in re.findall(r"(?m)^\| ([a-z0-9-]+) \| ([^|;]+?)(?:;[^|]*)? \|", PAGE):
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if any(block.startswith(f"{name}=={found.version} ") for block in entries().get(name, ())):
            assert page.licence(found.metadata.json) == stated, name
            compared += 1
    if not compared:
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
def test_licences_that_ask_for_sources_are_marked(page, licence, mark):
    assert page.copyleft(licence) == mark
