"""What is in the tree is in the wheel, and a checkout that hides an install says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {
    "tunegen": "tunegen",
    "harness": "tunegen/harness",
    "kernels": "tunegen/kernels",
    "templates": "tunegen/templates",
}


def wanted() -> set[str]:
    """Every module and template of the tree, and `py.typed`, by its path in the wheel."""
    found = {"pytest_tunegen.py"}
    for folder, target in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".j2", ".typed") and "__pycache__" not in path.parts:
                found.add(f"{target}/{path.relative_to(ROOT / folder).as_posix()}")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel, built from a copy so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("checkout") / "tree"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "pytest_tunegen.py", *FOLDERS):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next((copy / "dist").glob("*.whl")))


def test_every_module_and_template_of_the_tree_is_in_the_wheel(wheel):
    packed = {name for name in wheel.namelist() if Path(name).suffix in (".py", ".j2", ".typed")}
    assert packed == wanted()


def test_data_files_of_the_settings_are_in_the_wheel(wheel):
    for package, patterns in SETTINGS["tool"]["setuptools"]["package-data"].items():
        folders = SETTINGS["tool"]["setuptools"]["package-dir"]
        root = next(p for p in (package, package.rpartition(".")[0], "tunegen") if p in folders)
        inner = package.removeprefix(root).strip(".").replace(".", "/")
        for pattern in patterns:
            for path in (ROOT / folders[root] / inner).glob(pattern):
                name = f"{package.replace('.', '/')}/{path.relative_to(ROOT / folders[root] / inner).as_posix()}"
                assert name in wheel.namelist()


def test_commands_scopes_and_licence_are_declared(wheel):
    names = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    points = wheel.read(names["entry_points.txt"]).decode()
    assert "tunegen = tunegen.cli:main" in points
    assert "kernels = tunegen.kernels" in points
    assert "[pytest11]\ntunegen = pytest_tunegen" in points
    assert "LICENSE" in names
    assert not [name for name in wheel.namelist() if name.startswith(("tests/", "docs/")) or "__pycache__" in name]


def test_the_version_is_the_same_in_both_places():
    import tunegen

    assert tunegen.__version__ == SETTINGS["project"]["version"]


@pytest.mark.parametrize("folder", ["harness", "kernels", "templates"])
def test_a_code_folder_refuses_every_other_name_than_its_own(folder, tmp_path):
    done = subprocess.run([sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True)
    assert f"ImportError: import this package as tunegen.{folder}, not as {folder}" in done.stderr


def test_a_checkout_that_hides_a_plain_install_is_one_clear_message(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "tunegen").mkdir()
    (tmp_path / "tunegen" / "__init__.py").write_text("")
    (tmp_path / "test_x.py").write_text("def test_x(): ...")
    # -S: the import hook of an editable install is not there, as in an environment with a plain one
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider", "test_x.py"],
        cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": sysconfig.get_path("purelib"), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 4
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert lines == [
        f"ERROR: tunegen comes from {tmp_path / 'tunegen'}, which has no tunegen.harness, tunegen.kernels, "
        "tunegen.templates: the checkout hides a plain install, or there is none. Run `pip install -e .`, or run the "
        "tests from outside with `python -P -m pytest PATH`."
    ]
