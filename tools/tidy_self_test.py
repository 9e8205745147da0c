"""Plants one violation of each kind in a scratch tree and sees that tidy finds it there, and only
there."""

import os
import tempfile

import tidy

CLEAN = {
    "CMakeLists.txt": "add_library(base base/a.cpp)\nadd_executable(t tests/t.cpp)\n",
    "base/a.h": "// What a is for.\n#pragma once\n\n#include <fmt/format.h>\n\n#include <string>\n",
    "base/a.cpp": '#include "base/a.h"\n\n#include <spdlog_is_not_here>\n\nvoid a() {}\n',
    "tests/t.cpp": '#include "base/a.h"\n#include "tests/s.h"\nint main() { return 0; }\n',
    "tests/s.h": "// Support.\n#pragma once\n",
}
HEADER = "// What it is for.\n#pragma once\n\n"
LONG_BODY = "void long_one() {\n" + "  a();\n" * 69 + "}\n"

# (rule, file, its text, the line at which it must be found)
PLANTED = [
    ("include", "base/x.h", HEADER + '#include "models/gguf.h"\n', 4),
    ("include", "models/x.h", HEADER + '#include "transport/frame.h"\n', 4),
    ("include", "kernels/x.h", HEADER + '#include "models/gguf.h"\n', 4),
    ("include", "transport/x.h", HEADER + '#include "actors/messages.h"\n', 4),
    ("include", "actors/logic/x.h", HEADER + '#include "schemas/common.capnp.h"\n', 4),
    ("include", "actors/x.h", HEADER + '#include "apps/node/config.h"\n', 4),
    ("include", "apps/node/x.h", HEADER + '#include "tests/support/skip.h"\n', 4),
    ("include", "base/x.h", HEADER + '#include "../models/gguf.h"\n', 4),
    ("include", "base/x.h", HEADER + '#include "a.h"\n', 4),
    ("include", "models/x.h", HEADER + "#include <caf/actor.hpp>\n", 4),
    ("include", "actors/rpc/x.h", HEADER + "#include <caf/actor.hpp>\n", 4),
    ("include", "actors/x.h", HEADER + "#include <caf/all.hpp>\n", 4),
    ("include", "tests/x.h", HEADER + "#include <caf/all.hpp>\n", 4),
    ("include", "transport/x.h", HEADER + "#include <ucp/api/ucp.h>\n", 4),
    ("include", "actors/x.h", HEADER + "#include <kj/async.h>\n", 4),
    ("include", "transport/x.h", HEADER + "#include <capnp/rpc-twoparty.h>\n", 4),
    ("include", "models/x.h", HEADER + "#include <capnp/message.h>\n", 4),
    ("include", "transport/x.h", HEADER + "#include <boost/asio/io_context.hpp>\n", 4),
    ("include", "models/x.h", HEADER + "#include <immintrin.h>\n", 4),
    ("include", "kernels/x.h", HEADER + "#include <cuda_runtime.h>\n", 4),
    ("include", "models/x.h", HEADER + "#include <spdlog/spdlog.h>\n", 4),
    ("include", "apps/cli/x.h", HEADER + "#include <yaml-cpp/yaml.h>\n", 4),
    ("include", "actors/logic/x.h", HEADER + "#include <mutex>\n", 4),
    ("include", "actors/logic/x.h", HEADER + "#include <unistd.h>\n", 4),
    ("logic", "actors/logic/x.h", HEADER + "inline auto x() { return steady_now(); }\n", 4),
    ("logic", "actors/logic/x.h", HEADER + "using C = std::chrono::system_clock;\n", 4),
    ("logic", "actors/logic/x.h", HEADER + "inline auto x() { return random_u64(); }\n", 4),
    ("clock", "actors/x.h", HEADER + "inline auto x() { return steady_now(); }\n", 4),
    ("thread", "actors/x.h", HEADER + "struct X { std::mutex m; };\n", 4),
    ("thread", "actors/logic/x.h", HEADER + "struct X { std::thread t; };\n", 4),
    ("throw", "base/x.h", HEADER + "inline void x() { throw 1; }\n", 4),
    ("namespace", "base/x.h", HEADER + "using namespace std;\n", 4),
    ("length", "base/x.h", HEADER + "int a;\n" * 500, tidy.LINES_MAX),
    ("length", "tools/x.py", "a = 1\n" * 500, tidy.LINES_MAX),
    ("function", "base/x.h", HEADER + LONG_BODY, 4),
    ("function", "base/x.h", HEADER + "namespace n {\nstruct S {\n" + LONG_BODY + "};\n}\n", 6),
    ("function", "tests/x.h", HEADER + "BOOST_AUTO_TEST_CASE(c) {\n" + "  a();\n" * 70 + "}\n", 4),
    ("function", "tools/x.py", "def long_one():\n" + "    a()\n" * 70, 1),
    ("columns", "base/x.h", HEADER + "// " + "x" * 98 + "\n", 4),
    ("space", "base/x.h", HEADER + "int a; \n", 4),
    ("space", "base/x.h", HEADER + "\tint a;\n", 4),
    ("space", "base/x.h", HEADER + "int a;", 4),
    ("marker", "base/x.h", HEADER + "// FIX" + "ME: later\n", 4),
    ("marker", "base/x.h", HEADER + "// TO" + "DO: later\n", 4),
    ("marker", "base/x.h", HEADER + "// TO" + "DO(someday): later\n", 4),
    ("marker", "base/x.h", HEADER + "#if 0\n#endif\n", 4),
    ("header", "base/x.h", "#pragma once\n", 1),
    ("header", "base/x.h", "// What it is for.\nint a;\n", 1),
    ("workplace", "docs/x.md", "see /wo" + "rk/main\n", 1),
    ("workplace", "base/x.h", HEADER + "// as iss" + "ue #7 asks\n", 4),
    ("workplace", "base/x.h", HEADER + "// in /t" + "mp/x\n", 4),
    ("dead", "base/x.cpp", "int a;\n", 1),
    ("dead", "base/lonely.h", HEADER, 1),
]

# What looks like a violation and is none.
FINE = [
    ("base/x.h", HEADER + "// steady_now() and std::mutex in a comment, throw too\n"),
    ("base/x.h", HEADER + 'inline const char* x() { return "throw"; }\n'),
    ("actors/rpc/x.h", HEADER + "#include <kj/async.h>\nstruct X { std::mutex m; };\n"),
    ("actors/x.h", HEADER + "#include <caf/actor.hpp>\n"),
    ("transport/ucx/x.h", HEADER + "#include <ucp/api/ucp.h>\n"),
    ("base/x.h", HEADER + "void short_one() {\n" + "  a();\n" * 68 + "}\n"),
    ("base/x.h", HEADER + "inline const int kTable[] = {\n" + "  1,\n" * 90 + "};\n"),
    ("base/x.h", HEADER + "int main() {\n" + "  a();\n" * 90 + "}\n"),
    ("base/x.h", HEADER + "// TO" + "DO(perf): try prefetching\n"),
    ("base/x.h", HEADER + "// tidy: allow(throw): for a test\ninline void x() { throw 1; }\n"),
    ("base/x.h", HEADER + "// " + "µ" * 97 + "\n"),
    ("tests/x.h", HEADER + '// "/t' + 'mp/scratch" is fine in tests\n'),
]


def findings_with(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return tidy.check_tree(root)[1]


def tree_with(path, text, planted_rule=""):
    """The clean tree with one more file, which is included and listed unless that is the point."""
    files = dict(CLEAN)
    files[path] = text
    if planted_rule != "dead":
        if path.endswith(".h"):
            files["tests/t.cpp"] = f'#include "{path}"\n' + files["tests/t.cpp"]
        files["CMakeLists.txt"] += f"add_library(x {path})\n"
    return files


def run():
    failures = []
    clean = findings_with(CLEAN)
    if clean:
        failures.append(f"findings in the clean tree: {[str(finding) for finding in clean]}")
    for rule, path, text, line in PLANTED:
        found = findings_with(tree_with(path, text, rule))
        hit = [f for f in found if (f.path, f.line, f.rule) == (path, line, rule)]
        other = [str(f) for f in found if f.rule != rule]
        if not hit or other:
            failures.append(f"{rule} planted in {path}:{line}: found {[str(f) for f in found]}")
    for path, text in FINE:
        found = findings_with(tree_with(path, text))
        if found:
            failures.append(f"fine, but found: {[str(f) for f in found]}")
    for failure in failures:
        print(failure)
    print(f"tidy self-test: {len(PLANTED)} violations and {len(FINE)} look-alikes, "
          f"{len(failures)} failures")
    return 1 if failures else 0
