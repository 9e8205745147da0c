#!/usr/bin/env python3
"""Checks what reviewers would otherwise say twice: who may include what, clocks in logic, threads
in actors, lengths, markers, dead files.

  tools/tidy.py              check the tree; exit code 1 and one line a finding if there is any
  tools/tidy.py --self-test  plant each violation in a scratch tree and see that it is found
  tools/tidy.py --format     check the formatting with clang-format; exit code 77 if it is not there

A line that breaks a rule for a good reason says so: `tidy: allow(rule): reason`, on it or above it.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

CODE_FOLDERS = ("base", "schemas", "kernels", "models", "transport", "actors", "apps")
CPP = (".h", ".cpp", ".cu", ".cuh")
LINES_MAX = 499
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = {".capnp": 120, ".cmake": 120, "CMakeLists.txt": 120}  # all others: 100
COLUMNS_CHECKED = CPP + (".py", ".sh", ".capnp", ".cmake", "CMakeLists.txt")

# Folder -> whose headers it may include. The longest prefix of a path decides.
ARROWS = {
    "base": {"base"},
    "schemas": {"schemas", "base"},
    "kernels": {"kernels", "base"},
    "models": {"models", "kernels", "base"},
    "transport": {"transport", "schemas", "base"},
    "actors/logic": {"actors/logic", "base"},
    "actors/dataplane": {"actors/dataplane", "actors/logic", "models", "transport", "base"},
    "actors/rpc": {"actors/rpc", "schemas", "base"},
    "actors": {"actors", "actors/dataplane", "actors/logic", "actors/rpc", "models", "kernels",
               "transport", "schemas", "base"},
    "apps/client": {"apps/client", "actors/rpc", "schemas", "base"},
    "apps/model_store": {"apps/model_store", "models", "base"},
    "apps": {"apps", "apps/client", "apps/model_store", "actors", "actors/dataplane",
             "actors/logic", "actors/rpc", "models", "kernels", "transport", "schemas", "base"},
}

# Third-party headers -> where they may be included. Path patterns match from the start.
PEER = (r"transport/(peer|tls)/", r"actors/(gateway|rpc)")
RPC = (r"actors/rpc/", r"apps/client/")
THIRD_PARTY = [
    (r"caf/", (r"actors/[^/]+$", r"apps/")),
    (r"uc[pstm]/", (r"transport/ucx/",)),
    (r"(capnp/(rpc|ez-rpc|capability|membrane)|kj/(async|compat))", RPC),
    (r"(capnp|kj)/", (r"schemas/", r"transport/") + RPC),
    (r"boost/(asio|beast)", PEER),
    (r"openssl/", PEER + (r"apps/model_store/sha256\.cpp$",)),
    (r"boost/", (r"transport/", r"actors/rpc/")),
    (r"cuda|cublas", (r"kernels/cuda/",)),
    (r"nccl", (r"transport/nccl/",)),
    (r"(imm|x86|avx|emm|xmm)\w*intrin\.h|cpuid\.h", (r"kernels/",)),
    (r"spdlog/", (r"base/log\.cpp$",)),
    (r"xxhash\.h", (r"base/digest\.cpp$",)),
    (r"sqlite3\.h", (r"actors/[^/]*ledger",)),
    (r"yaml-cpp/", (r"apps/node/",)),
    (r"CLI/", (r"apps/",)),
    (r"nlohmann/", (r"apps/", r"models/chat_templates/json\.cpp$")),
]

LOGIC_HEADERS_BANNED = {"thread", "mutex", "shared_mutex", "condition_variable", "atomic", "future",
                        "random", "iostream", "fstream", "cstdio", "ctime", "filesystem"}
LOGIC_BANNED = re.compile(
    r"\b(steady_now|wall_clock_ms|random_u64|random_device|system_clock|high_resolution_clock|"
    r"steady_clock\s*::\s*now|sleep_for|sleep_until|gettimeofday|clock_gettime|getenv|s?rand|"
    r"log_(debug|info|warning|error))\b")
# Shells use the actor clock, which tests turn by hand.
SHELL_CLOCK = re.compile(r"\b(steady_now|steady_clock\s*::\s*now)\b")
THREADS = re.compile(
    r"\bstd::(mutex|shared_mutex|recursive_mutex|thread|jthread|condition_variable\w*|lock_guard|"
    r"scoped_lock|unique_lock)\b")
# The one file in actors/ that owns a thread: where a stage computes.
THREADS_ALLOWED = re.compile(r"actors/(rpc|dataplane)/")
MARKERS = re.compile(r"\b(XXX|FIXME|HACK|WIP)\b|^(<{7}|>{7}) |^\s*#\s*if 0\b")
TODO = re.compile(r"\bTODO\b(?!\((perf|test|cleanup|port)\): \S)")
WORKPLACE = re.compile(
    r"(?<![\w.])/(work|root|tmp)/|/home/\w|\bissue\s*#?\d+|\bthis session\b|"
    r"\bshared/(design|notes)\b",
    re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


class Source:
    """One file: its lines as they stand, and (C++) the same lines without comments and strings."""

    def __init__(self, root, path):
        self.path = path
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.splitlines()
        self.is_cpp = path.endswith(CPP)
        self.bare = without_comments(self.text).split("\n") if self.is_cpp else self.lines

    def allows(self, line, rule):
        near = self.lines[max(0, line - 2):line]
        return any(f"tidy: allow({rule}): " in text for text in near)


def without_comments(text):
    """Blanks comments, strings and characters; keeps every line feed."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def owner(path, table):
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        prefix = "/".join(parts[:length])
        if prefix in table:
            return prefix
    return None


def check_includes(source):
    folder = owner(source.path, ARROWS)
    for number, line in enumerate(source.lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        quoted, name = match.group(1) == '"', match.group(2)
        if name == "caf/all.hpp":
            yield number, "include", "caf/all.hpp costs 5 s a file; include what is used"
        if quoted:
            target = owner(name, ARROWS)
            if name.startswith((".", "/")) or (target is None and
                                               not name.startswith(("tests/", "tools/"))):
                yield number, "include", f'"{name}": include from the repository root'
            elif folder and (target is None or target not in ARROWS[folder]):
                yield number, "include", f"{folder} must not include {name}"
            continue
        if folder is None:
            continue
        for pattern, places in THIRD_PARTY:
            if re.match(pattern, name):
                if not any(re.match(place, source.path) for place in places):
                    yield number, "include", f"<{name}> is not for {source.path}"
                break
        if folder == "actors/logic":
            if name in LOGIC_HEADERS_BANNED or (("/" in name or name.endswith(".h")) and
                                                name != "fmt/format.h"):
                yield number, "include", f"logic must not know <{name}>"


def check_words(source):
    in_logic = source.path.startswith("actors/logic/")
    in_actors = source.path.startswith("actors/") and not in_logic
    for number, line in enumerate(source.bare, 1):
        if in_logic and (match := LOGIC_BANNED.search(line)):
            yield number, "logic", f"{match.group()} in logic: time, chance and facts are arguments"
        if THREADS_ALLOWED.match(source.path):
            continue
        if in_actors and (match := SHELL_CLOCK.search(line)):
            yield number, "clock", f"{match.group()} in an actor: use the actor's clock"
        if (in_actors or in_logic) and (match := THREADS.search(line)):
            yield number, "thread", f"{match.group()} in actors/: one owner, messages between them"
    if not source.path.startswith(CODE_FOLDERS):
        return
    for number, line in enumerate(source.bare, 1):
        if source.is_cpp and re.search(r"\bthrow\b", line):
            yield number, "throw", "no exceptions of our own: return a Result"
        if source.path.endswith(".h") and re.search(r"\busing\s+namespace\b(?!.*literals)", line):
            yield number, "namespace", "a header must not open a namespace for others"


def check_text(source):
    name = os.path.basename(source.path)
    kind = name if name == "CMakeLists.txt" else os.path.splitext(name)[1]
    columns_max = COLUMNS_MAX.get(kind, 100)
    own = source.path.startswith("tools/tidy")  # speaks of what it looks for
    scratch_fine = source.path.startswith("tests/")
    for number, line in enumerate(source.lines, 1):
        if kind in COLUMNS_CHECKED and len(line) > columns_max:
            yield number, "columns", f"{len(line)} columns, at most {columns_max}"
        if line != line.rstrip() and kind != ".md":
            yield number, "space", "space at the end of the line"
        if "\t" in line and (source.is_cpp or kind == ".py"):
            yield number, "space", "tabulator"
        if own:
            continue
        if match := MARKERS.search(line):
            yield number, "marker", f"leftover: {match.group().strip()}"
        if kind != ".md" and TODO.search(line):
            yield number, "marker", "TODO needs a kind: TODO(perf|test|cleanup|port): what"
        match = WORKPLACE.search(line)
        if match and not (scratch_fine and match.group().startswith("/tmp")):
            yield number, "workplace", f"{match.group()!r} means nothing elsewhere"
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "space", "no line feed at the end of the file"
    if len(source.lines) > LINES_MAX and kind in COLUMNS_CHECKED:
        yield LINES_MAX, "length", f"{len(source.lines)} lines, split before {LINES_MAX + 1}"


def check_header(source):
    if not source.path.endswith(".h"):
        return
    if not source.lines or not source.lines[0].startswith("//"):
        yield 1, "header", "must open with a comment: what it is for, and the idea"
    if "#pragma once" not in source.lines:
        yield 1, "header", "#pragma once is missing"


CONTROL = re.compile(r"\b(if|for|while|switch|catch|return|do|else)\b\s*(constexpr\b)?\s*(\(|$)")
SCOPE = re.compile(
    r"\b(namespace|class|struct|union|enum|extern)\b(?!.*\)\s*(const|noexcept)?\s*$)")


def opens_body(before):
    return ("(" in before and not SCOPE.search(before.split("(")[0]) and
            not CONTROL.match(before) and not re.search(r"[=,(]\s*$", before))


def functions_of(bare_lines):
    """(name, first line, last line) of each body outside other bodies. A brace opens a body if what
    stands before it has a parameter list and is no class, namespace or control statement."""
    stack, found, words = [], [], []
    for number, line in enumerate(bare_lines, 1):
        if line.lstrip().startswith("#"):
            continue
        for character in line:
            if character == "{":
                before = " ".join("".join(words).split())
                inside = any(kind == "body" for kind, _, _ in stack)
                kind = "body" if not inside and opens_body(before) else "scope"
                name = re.search(r"([\w:~]+|operator\S+)\s*\(", before)
                stack.append((kind, name.group(1) if name else "?", number))
                words = []
            elif character == "}":
                if stack:
                    kind, name, start = stack.pop()
                    if kind == "body":
                        found.append((name, start, number))
                words = []
            elif character == ";":
                words = []
            else:
                words.append(character)
        words.append(" ")
    return found


def check_functions(source):
    if source.is_cpp:
        bodies = functions_of(source.bare)
    elif source.path.endswith(".py"):
        try:
            tree = ast.parse(source.text)
        except SyntaxError as error:
            yield error.lineno or 1, "function", f"is no Python: {error.msg}"
            return
        bodies = [(node.name, node.lineno, node.end_lineno) for node in ast.walk(tree)
                  if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    else:
        return
    for name, start, end in bodies:
        if end - start + 1 > FUNCTION_LINES_MAX and name != "main":
            length = end - start + 1
            yield start, "function", f"{name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def check_dead(sources):
    """A .cpp that no CMake list of a folder above it names; a header that nobody includes."""
    lists = {source.path: source.text for source in sources
             if source.path.endswith((".cmake", "CMakeLists.txt"))}
    included = set()
    for source in sources:
        if source.is_cpp:
            for name in re.findall(r'#\s*include\s*"([^"]+)"', source.text):
                if name != source.path:
                    included.add(name)
    for source in sources:
        if source.path.endswith((".cpp", ".cu")):
            if not any(names(text, os.path.dirname(path), source.path)
                       for path, text in lists.items()):
                yield Finding(source.path, 1, "dead", "no CMake list names this file")
        elif source.path.endswith((".h", ".cuh")) and source.path not in included:
            # CMake lists may name what only generated code includes.
            yield Finding(source.path, 1, "dead", "nothing includes this header")


def names(text, folder, path):
    relative = os.path.relpath(path, folder or ".")
    if "${PROJECT_SOURCE_DIR}/" + path in text:
        return True
    # Also ${CMAKE_CURRENT_LIST_DIR}/x.cpp.
    if re.search(rf"(?<![\w./-])(\$\{{\w+\}}/)?{re.escape(relative)}(?![\w.])", text):
        return True
    # Lists that are made of parts: foreach(operator matmul …) cpu/${operator}.cpp
    stem = os.path.splitext(os.path.basename(path))[0]
    inside = not folder or path.startswith(folder + "/")
    return inside and "foreach" in text and bool(re.search(rf"(?<![\w/]){stem}(?!\w)", text))



CHECKS = (check_includes, check_words, check_text, check_header, check_functions)
CHECKED_NAMES = CPP + (".capnp", ".cmake", "CMakeLists.txt", ".py", ".sh", ".md", ".yaml", ".json",
                       ".ci/run")


def files_of(root):
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                                capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # not a clone: everything but build folders
        listed = []
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__")]
            listed += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted(path for path in set(listed) if path.endswith(CHECKED_NAMES) and
                  os.path.isfile(os.path.join(root, path)))


def check_tree(root):
    sources = [Source(root, path) for path in files_of(root)]
    findings = []
    for source in sources:
        for check in CHECKS:
            for line, rule, text in check(source):
                if not source.allows(line, rule):
                    findings.append(Finding(source.path, line, rule, text))
    by_path = {source.path: source for source in sources}
    findings += [finding for finding in check_dead(sources)
                 if not by_path[finding.path].allows(2, "dead")]
    return sources, sorted(findings, key=lambda f: (f.path, f.line, f.rule))


def check_format(root):
    """The format is defined by clang-format 14: other versions break lines elsewhere."""
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = ""
    if program:
        version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if " version 14." not in version and "version 14." not in version:
        print(f"SKIPPED: clang-format 14 is not installed (found: {version.strip() or 'none'})")
        return 77
    paths = [path for path in files_of(root) if path.endswith(CPP)]
    result = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=1"] + paths, cwd=root)
    print(f"format: {len(paths)} files, " + ("all right" if result.returncode == 0 else
                                             "run clang-format -i on those named above"))
    return 0 if result.returncode == 0 else 1


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import tidy_self_test
        return tidy_self_test.run()
    if arguments == ["--format"]:
        return check_format(root)
    if arguments:
        print(__doc__)
        return 0 if arguments == ["--help"] else 2
    sources, findings = check_tree(root)
    for finding in findings:
        print(finding)
    print(f"tidy: {len(sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
