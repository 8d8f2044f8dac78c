"""The origin of code, and the valid names of entry points."""

import os
import tarfile

import pytest

from tidemill_runtime._shared.trees import remove_tree
from tidemill_runtime.code import find_entry_point, put_in_place
from tidemill_runtime.errors import ConfigurationError, EntryPointNotFound, InvalidArchive
from tidemill_runtime.layout import Layout


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "ml")
    layout.private.mkdir(parents=True)
    return layout


def pack(path, source):
    with tarfile.open(path, "w:gz") as tar:
        tar.add(source, ".")


@pytest.fixture
def source(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("pass")
    return source


def names(layout):
    return [path.name for path in layout.code.iterdir()]


def test_the_submitted_archive_is_unpacked(layout, source):
    pack(layout.submitted_code, source)
    put_in_place(layout, submit_directory="s3://b/sourcedir.tar.gz")
    assert names(layout) == ["train.py"]


def test_existing_code_is_not_changed(layout, source):
    pack(layout.submitted_code, source)
    layout.code.mkdir()
    (layout.code / "mine.py").touch()
    put_in_place(layout, submit_directory="s3://b/sourcedir.tar.gz")
    assert names(layout) == ["mine.py"]


@pytest.mark.parametrize("form", ["directory", "archive", "file", "uri"])
def test_local_code_is_copied(layout, source, tmp_path, form):
    if form == "archive":
        pack(tmp_path / "local.tar.gz", source)
    given = {
        "directory": str(source),
        "archive": str(tmp_path / "local.tar.gz"),
        "file": str(source / "train.py"),
        "uri": f"file://{source}",
    }
    put_in_place(layout, submit_directory=given[form])
    assert names(layout) == ["train.py"]


def test_local_code_of_any_depth_is_copied_with_modes_and_links(layout, source):
    deepest = source
    for _ in range(900):
        deepest /= "d"
        deepest.mkdir()
    (deepest / "file").write_text("deep")
    (source / "link").symlink_to("train.py")
    (source / "d").chmod(0o750)
    put_in_place(layout, submit_directory=str(source))
    assert layout.code.joinpath(*"d" * 900, "file").read_text() == "deep"
    assert (layout.code / "link").is_symlink()
    assert (layout.code / "d").stat().st_mode & 0o777 == 0o750
    for directory in (source, layout.code):  # pytest could not
        remove_tree(directory)


def test_a_refused_archive_is_named_by_its_uri(layout):
    layout.submitted_code.write_bytes(b"rubbish")
    with pytest.raises(InvalidArchive, match=r"^s3://b/sourcedir\.tar\.gz: not a gzip tar"):
        put_in_place(layout, submit_directory="s3://b/sourcedir.tar.gz")


@pytest.mark.parametrize("given", ["s3://b/sourcedir.tar.gz", "/nowhere/at/all"])
def test_missing_code_is_named(layout, given):
    with pytest.raises(ConfigurationError, match=given):
        put_in_place(layout, submit_directory=given)


@pytest.mark.parametrize(
    ("name", "setup", "kind"),
    [
        ("train.py", False, "script"),
        ("train.py", True, "package"),
        ("run.sh", True, "command"),
        ("run.sh", False, "command"),
        ("tool", False, "command"),
        ("tool", True, "package"),
        ("sub/a_b+c-d.py", False, "script"),
        ("my script.py", False, "script"),
        ("обучение.py", False, "script"),
        ("train (1);.sh", False, "command"),
    ],
)
def test_an_entry_point_has_the_first_kind_that_fits(source, name, setup, kind):
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).touch()
    if setup:
        (source / "setup.py").touch()
    assert find_entry_point(source, name).kind == kind


@pytest.mark.parametrize(
    "name",
    [
        "a.py; id",
        "../a.py",
        "absent.py",
        "sub",
        "\udcff.py",
        "",
        "-c",
        "/etc/passwd",
        "sub/./a.py",
        "a\n.py",
        "a.py\n",
        "out.py",
    ],
)
def test_a_missing_entry_point_is_refused_with_the_list_of_files(source, name):
    (source / "sub").mkdir()
    (source / "a.py").touch()
    (source / "out.py").symlink_to("/etc/passwd")
    with pytest.raises(EntryPointNotFound) as refused:
        find_entry_point(source, name)
    text = str(refused.value)
    assert text.startswith("entry point ") and " not found in sourcedir: " in text
    assert "a.py, out.py, sub/, train.py" in text
    assert text.isascii() and "\n" not in text


def test_a_refused_entry_point_says_which_rule_it_breaks_and_lists_a_few_files(source):
    (source / "sub").mkdir()
    (source / "out.py").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe.py")
    for name, words in {
        "": "no name was given (hyperparameter sagemaker_program or variable SAGEMAKER_PROGRAM)",
        "../a.py": "has no . or .. segment",
        "absent.py": "there is no such file",
        "sub": "it is a directory",
        "pipe.py": "it is not a regular file",
        "out.py": "it is a link that leaves the code",
        "n" * 300: "there is no such file",
    }.items():
        with pytest.raises(EntryPointNotFound) as refused:
            find_entry_point(source, name)
        assert words in str(refused.value)
        assert len(str(refused.value)) < 400, "a long name is cut"
    for number in range(30):
        (source / f"module{number:02}.py").touch()
    with pytest.raises(EntryPointNotFound, match=r"module19\.py and 14 more$"):
        find_entry_point(source, "absent.py")
    with pytest.raises(EntryPointNotFound, match=r"What is there: nothing$"):
        find_entry_point(source / "sub", "absent.py")


def test_a_notebook_is_refused_with_the_command_that_converts_it(source):
    (source / "train.ipynb").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"jupyter nbconvert --to script train.ipynb"):
        find_entry_point(source, "train.ipynb")


def test_a_shell_script_with_line_ends_of_windows_is_refused_with_the_remedy(source):
    (source / "train.sh").write_bytes(b"#!/bin/sh\r\necho hello\r\n")
    with pytest.raises(ConfigurationError, match=r"end with CR LF.*dos2unix"):
        find_entry_point(source, "train.sh")
    (source / "train.py").write_bytes(b"print(1)\r\n")
    assert find_entry_point(source, "train.py").kind == "script"
