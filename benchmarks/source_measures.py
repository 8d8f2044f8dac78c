"""Measure how easy the source is to read: sizes, types, docstrings, names, tests. `make measure` runs this.

    python benchmarks/source_measures.py [--names] [--limits]

Counts files that git tracks, so copies of `shared/` count once. `files_entered.py` counts the way of a request.
"""

import argparse
import ast
import os
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TYPED = ("horovod", "smp", "tensorflow")  # packages around TensorFlow, which has no types of its own
TESTED = ("horovod", "tensorflow", "runtime")
LONGEST_FUNCTION, DEEPEST = 60, 3
MOST_IMPORTS, MOST_LINES = 25, 600
SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:")
Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


@dataclass(frozen=True)
class Source:
    """One file of Python."""

    path: str
    lines: int
    tree: ast.Module

    @property
    def package(self) -> str:
        """Return the distribution's short name, e.g. ``smp``; ``shared`` for what is copied into several."""
        parts = self.path.split("/")
        return parts[1].removeprefix("tidemill-") if parts[0] == "packages" else parts[0]


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=True, text=True)
    return [path for path in listed.stdout.split("\0") if path]


def of_the_product(path: str) -> bool:
    return path.startswith(("packages/", "shared/")) and "/tests/" not in path and "hatch_build" not in path


def read(path: str) -> Source:
    text = (ROOT / path).read_text()
    return Source(path, text.count("\n"), ast.parse(text))


def functions(source: Source) -> Iterator[Function]:
    return (node for node in ast.walk(source.tree) if isinstance(node, Function))


def length(function: Function) -> int:
    """Return the number of lines from ``def`` to the end, without the docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    described = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring is not None else 0
    return (function.end_lineno or 0) - function.lineno + 1 - described


def depth(node: ast.AST, above: int = 0) -> int:
    """Return how many blocks the deepest statement of a function is in; `elif` does not count, inner functions do."""
    deepest = above
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, Function | ast.ClassDef | ast.Lambda):
                continue
            chained = field == "orelse" and isinstance(node, ast.If) and isinstance(child, ast.If) and len(value) == 1
            deepest = max(deepest, depth(child, above + (isinstance(child, NESTING) and not chained)))
    return deepest


def annotations(source: Source) -> Iterator[ast.expr]:
    """Yield the annotations of parameters, results and variables."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            arguments = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            yield from (each.annotation for each in arguments if each is not None and each.annotation is not None)
            if node.returns is not None:
                yield node.returns
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def is_any(annotation: ast.expr) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def public_functions(source: Source) -> Iterator[Function]:
    """Yield functions and methods whose callers cannot know them from their signature alone.

    These are public, in a public place, and take an argument or return a value.
    """
    if any(part.startswith("_") and not part.startswith("__init__") for part in source.path.split("/")):
        return
    places: list[ast.Module | ast.ClassDef] = [source.tree]
    places += [node for node in source.tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for place in places:
        for node in place.body:
            if not isinstance(node, Function) or node.name.startswith("_"):
                continue
            named = {ast.unparse(each) for each in node.decorator_list}
            if not any(name == "property" or name.endswith((".setter", "override", "overload")) for name in named):
                yield node


def is_described(function: Function) -> bool:
    text = ast.get_docstring(function) or ""
    return any(section in text for section in SECTIONS)


def imports(source: Source) -> int:
    """Return how many modules a file imports."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return len(found)


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def print_measures(sources: list[Source], *, names: bool) -> None:
    """Print one line per measure; with ``names`` also what each of them counts."""

    def line(name: str, value: object, counted: list[str] = []) -> None:  # noqa: B006 - never changed
        print(f"{name:48} {value}")
        for each in counted if names else ():
            print(f"    {each}")

    for package in TYPED:
        found = [annotation for source in sources if source.package == package for annotation in annotations(source)]
        line(f"Any in annotations: {package}", share(sum(map(is_any, found)), len(found)))
    public = [(source, function) for source in sources for function in public_functions(source)]
    described = sum(is_described(function) for _, function in public)
    line("public functions with Args, Returns or Raises", share(described, len(public)))
    most = sorted(sources, key=imports, reverse=True)[:5]
    line("most imports in a file", imports(most[0]), [f"{imports(source)} {source.path}" for source in most])
    every = [(source, function) for source in sources for function in functions(source)]
    long = [(source, function) for source, function in every if length(function) > LONGEST_FUNCTION]
    line(f"functions over {LONGEST_FUNCTION} lines", len(long), [_place(*each) for each in long])
    deep = [(source, function) for source, function in every if depth(function) > DEEPEST]
    line(f"functions deeper than {DEEPEST} blocks", len(deep), [_place(*each) for each in deep])
    classes: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(source.path)
    twice = {name: paths for name, paths in classes.items() if len(paths) > 1}
    line(
        "class names with two meanings or more",
        len(twice),
        [f"{name}: {', '.join(sorted(twice[name]))}" for name in sorted(twice)],
    )
    large = [source for source in sources if source.lines > MOST_LINES]
    line(f"files over {MOST_LINES} lines", len(large), [f"{source.lines} {source.path}" for source in large])


def _place(source: Source, function: Function) -> str:
    return f"{source.path}:{function.lineno} {function.name}"


def above_limits(sources: list[Source]) -> list[str]:
    """Return a sentence for each file that imports too many modules, or is too long."""
    found = [f"{each.path} imports {imports(each)} modules" for each in sources if imports(each) > MOST_IMPORTS]
    return found + [f"{each.path} has {each.lines} lines" for each in sources if each.lines > MOST_LINES]


def print_sizes(sources: list[Source]) -> None:
    """Print the lines of the source, and the ratio of tests to source of some packages."""
    native = [path for path in tracked("*.cc", "*.c", "*.h") if of_the_product(path)]
    written = sum((ROOT / path).read_text().count("\n") for path in native)
    python = sum(source.lines for source in sources)
    tests = [read(path) for path in tracked("*.py") if "tests/" in path]
    line = "{:48} {}".format
    print(line("lines of source (Python and C++)", f"{python + written} ({python} and {written})"))
    print(line("lines of tests", sum(test.lines for test in tests)))
    of_source, of_tests = Counter[str](), Counter[str]()
    for counter, files in ((of_source, sources), (of_tests, tests)):
        for source in files:
            counter[source.package] += source.lines
    for package in TESTED:
        print(line(f"tests : source, {package}", f"{of_tests[package] / of_source[package]:.2f}"))


def print_subjects(since: str) -> None:
    """Print the lengths of the subjects of commits since a revision."""
    command = ["git", "log", "--format=%s", f"{since}..HEAD" if since else "HEAD"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    lengths = [len(subject) for subject in log.stdout.splitlines()] or [0]
    middle = statistics.median(lengths)
    print(f"{'subjects of commits, median and longest':48} {middle:.0f}, {max(lengths)} of {len(lengths)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="also print what is counted")
    parser.add_argument("--since", default="", help="first revision of the subjects, exclusive (all)")
    parser.add_argument("--limits", action="store_true", help="only fail if a file has too many imports or lines")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sources = [read(path) for path in tracked("*.py") if of_the_product(path)]
    if arguments.limits:
        if found := above_limits(sources):
            advice = f"at most {MOST_IMPORTS} imports and {MOST_LINES} lines: split by responsibility"
            raise SystemExit("\n".join((*found, advice)))
        return
    print_measures(sources, names=arguments.names)
    print_sizes(sources)
    print_subjects(arguments.since)


if __name__ == "__main__":
    main()
