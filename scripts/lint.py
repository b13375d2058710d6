#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lint.py: the rules of the house that a program can check. TAP on stdout, exit 1 where one does not hold.

Each rule is a function that yields the places where it is broken.
"""

import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
TEST_LINES_MAX = 750
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 160

# Who may include whom. A room may always include itself.
ARROWS = {
    "base": set(),
    "format": {"base"},
    "protocol": {"format", "base"},
    "queue": {"protocol", "format", "base"},
    "sandbox": {"protocol", "format", "base"},
    "images": {"sandbox", "protocol", "format", "base"},
    "entry": {"format", "base"},
    "probes": {"sandbox"},
    "client": {"queue", "protocol", "format", "base"},
    "egress": {"queue", "protocol", "format", "base"},
    "runner": {"sandbox", "images", "queue", "protocol", "format", "base"},
    "cli": {"client", "images", "queue", "protocol", "format", "base"},
}
# Time, randomness, descriptors and the log come into these rooms as arguments, or not at all.
PURE_ROOMS = ("format", "protocol")
IMPURE = re.compile(r'#include ("base/(log|clock|random|fd|io|config)\.h"|<(unistd|fcntl|time|poll|sys/\w+|gio/\w+|hiredis/\w+)\.h>)')
# Of these only the types are taken.
IMPURE_EXCUSED = {"<sys/types.h>", "<sys/stat.h>"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<][^">]+[">])', re.M)
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_SUFFIXES = {".c", ".h", ".def", ".py", ".sh", ".lua", ".js", ".mjs", ".build", ".yml", ".list", ".scd"}
HOST = re.compile(r"https?://([A-Za-z0-9.-]+)")
HOSTS_ALLOWED = re.compile(r"^(www\.apache\.org|localhost|127\.0\.0\.1|([a-z0-9-]+\.)*example(\.(com|org|net))?|"
                           r"json-schema\.org|www\.w3\.org|www\.debian\.org|gvisor\.dev|[0-9.]+)$")


def tracked():
    """The files of the clone, whoever owns it; of an unpacked archive all but what builds make."""
    run = subprocess.run(["git", "-c", "safe.directory=*", "-C", ROOT, "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, check=False)
    if run.returncode == 0:
        paths = [ROOT / name.decode() for name in run.stdout.split(b"\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if not {"build", ".git", "node_modules", "__pycache__"} & set(p.parts)]
    return [p for p in paths if p.is_file() and not p.is_symlink()]


FILES = tracked()
SOURCES = [p for p in FILES if p.suffix in (".c", ".h", ".def") and "vectors" not in p.parts]


def text(path):
    return path.read_text(encoding="utf-8", errors="replace")


def name(path):
    return str(path.relative_to(ROOT))


def room_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def arrows_point_down():
    for path in SOURCES:
        room = room_of(path)
        if room is None:
            continue
        if room not in ARROWS:
            yield f"{name(path)}: room {room} is not in the plan"
            continue
        for include in INCLUDE.findall(text(path)):
            if include.startswith("<"):
                continue
            target = include.strip('"').split("/")[0]
            if "/" not in include or not ((ROOT / "src" / include.strip('"')).is_file() or ".gen." in include):
                yield f'{name(path)}: includes {include}: not a "room/file.h"'
            elif target != room and target not in ARROWS[room]:
                yield f"{name(path)}: {room} may not include {include}"


def pure_rooms_stay_pure():
    for path in SOURCES:
        if room_of(path) in PURE_ROOMS:
            for match in IMPURE.finditer(text(path)):
                if match.group(1) not in IMPURE_EXCUSED:
                    yield f"{name(path)}: a pure room includes {match.group(1)}"


def closure(path, seen):
    """All headers of ours that a file includes, and the system's that they include."""
    for include in INCLUDE.findall(text(path)):
        if include in seen:
            continue
        seen.add(include)
        target = ROOT / "src" / include.strip('"')
        if include.startswith('"') and target.is_file():
            closure(target, seen)
    return seen


def entry_is_libc_only():
    for path in SOURCES:
        if room_of(path) in ("entry", "probes"):
            for include in sorted(closure(path, set())):
                if re.match(r"<(glib|gio|openssl|hiredis|git2)", include):
                    yield f"{name(path)}: reaches {include}"


def files_are_short():
    for path in SOURCES + [p for p in FILES if p.suffix in (".py", ".sh", ".lua", ".js", ".mjs")]:
        n = text(path).count("\n")
        if n > (TEST_LINES_MAX if name(path).startswith("tests/") else FILE_LINES_MAX):
            yield f"{name(path)}: {n} lines"


def functions_are_short():
    for path in SOURCES:
        start = None
        for number, line in enumerate(text(path).splitlines(), 1):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                if number - start - 1 > FUNCTION_LINES_MAX:
                    yield f"{name(path)}:{start}: {number - start - 1} lines"
                start = None


def lines_are_short():
    for path in SOURCES:
        for number, line in enumerate(text(path).splitlines(), 1):
            if len(line) > LINE_CHARACTERS_MAX and "://" not in line:
                yield f"{name(path)}:{number}: {len(line)} characters"
            if "\t" in line or line != line.rstrip():
                yield f"{name(path)}:{number}: tab or blank at the end"


def licences_are_named():
    for path in FILES:
        if "vectors" in path.parts or "corpus" in path.parts or path.name.endswith("package-lock.json"):
            continue
        head = "\n".join(text(path).splitlines()[:3])
        script = head.startswith("#!")
        if (path.suffix in SPDX_SUFFIXES or script or path.name == "meson.build") and SPDX not in head:
            yield name(path)


def hosts_are_not_named():
    for path in FILES:
        if "vectors" in path.parts or "corpus" in path.parts or path.name == "LICENSE":
            continue
        for host in HOST.findall(text(path)):
            if "." in host and not HOSTS_ALLOWED.match(host):
                yield f"{name(path)}: names the host {host}"


def compile_flags():
    packages = ["gio-unix-2.0", "hiredis", "jansson", "libcrypto", "zlib", "libdeflate", "libseccomp", "libgit2"]
    flags = subprocess.run(["pkg-config", "--cflags", *packages], capture_output=True, text=True, check=True).stdout
    return ["cc", "-std=gnu11", "-D_GNU_SOURCE", '-DQV_VERSION="0"', "-Wall", "-Werror", "-fsyntax-only", "-x", "c",
            "-I", str(ROOT / "src"), *flags.split()]


def headers_stand_alone():
    headers = [p for p in SOURCES if p.suffix == ".h" and p.relative_to(ROOT).parts[0] == "src"]
    command = compile_flags()

    def check(path):
        unit = f'#include "{path.relative_to(ROOT / "src")}"\n'
        run = subprocess.run([*command, "-"], input=unit, capture_output=True, text=True, check=False)
        first = (run.stderr.splitlines() or [""])[0]
        return f"{name(path)}: {first}" if run.returncode else None

    with ThreadPoolExecutor(2) as pool:
        yield from filter(None, pool.map(check, headers))


def configuration_is_used():
    table = text(ROOT / "src/base/config.def")
    code = "\n".join(text(p) for p in SOURCES if p.suffix == ".c" and room_of(p) not in (None, "base"))
    for field in re.findall(r"^QV_CONFIG\(\w+, (\w+),", table, re.M):
        helper = {"images_file": "qv_config_images_file", "registries": "qv_config_registries",
                  "registries_file": "qv_config_registries"}.get(field, "")
        if not re.search(rf"(->|\.){field}\b", code) and not (helper and helper in code):
            yield f"src/base/config.def: nothing reads {field}"


def settings_are_in_the_table():
    table = text(ROOT / "src/base/config.def")
    known = set(re.findall(r'"((?:QUAVON|VALKEY)_\w+)"', table))
    for path in SOURCES:
        if room_of(path) in (None, "entry", "probes") or path.name in ("config.c", "config.def"):
            continue
        for variable in re.findall(r'getenv\("((?:QUAVON|VALKEY)_\w+)"\)', text(path)):
            if variable not in known:
                yield f"{name(path)}: reads {variable}, which is not in the table"


def measured_tests_are_shipped(script=None):
    """A system test that leaves something out under ASan is asked by the optimised build."""
    script = script if script is not None else text(ROOT / "scripts/test.sh")
    listed = re.search(r"^shipped=\(\n(.*?)^\)", script, re.M | re.S)
    for path in SOURCES:
        parts = path.relative_to(ROOT).parts
        if parts[:2] in (("tests", "integration"), ("tests", "interop"), ("tests", "fault")) and "__SANITIZE_" in text(path):
            test = f"{parts[2]}/{re.sub('^test_|_test$', '', path.stem)}"
            if not listed or not re.search(rf"^  {test}(-\S+)?(\s|$)", listed.group(1), re.M):
                yield f"{name(path)}: {test} is not in the list `shipped` of scripts/test.sh"


def tests_by_name():
    """Sources of each test, as it is named in meson: by its room and its file, or by the name in its meson.build."""
    known = {}
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        if parts[0] != "tests" or len(parts) < 3:
            continue
        room = parts[-2]
        if path.suffix in (".c", ".py"):
            known.setdefault(f"{room}/{re.sub('^test_|_test$', '', path.stem)}", []).append(path)
        elif path.name == "meson.build":
            plan = text(path)
            tests = re.findall(r"test\('(\w+/\w+)'", plan)
            tests += [head + word for head in re.findall(r"test\('(\w+/)' \+", plan) for word in re.findall(r"'(\w+)'", plan)]
            for test in tests:
                known.setdefault(test, []).extend(p for p in FILES if p.parent == path.parent)
    return known


def defences_have_their_tests(page=None):
    """What docs/THREATS.md names as shown by a test names one, and it and its cases are there."""
    page = page if page is not None else text(ROOT / "docs/THREATS.md")
    known = tests_by_name()
    for line in page.split("## Boundaries")[-1].split("## What remains")[0].splitlines():
        words = re.findall(r"`([^`]+)`", line.split(" | ")[-1])
        named = [re.sub(r"-docker-.*|-runsc$", "", w) for w in words if re.fullmatch(r"[a-z]+/[\w*-]+", w)]
        fuzz = [f"fuzz/fuzz_{w}" for list_ in re.findall(r"fuzz(?: targets?)? ((?:`\w+`(?:, )?)+)", line) for w in re.findall(r"\w+", list_)]
        sources = []
        for test in named + fuzz:
            found = [p for t in fnmatch.filter(known, test) for p in known[t]]
            sources += found
            if not found:
                yield f"docs/THREATS.md: there is no test {test}"
        for case in (w for w in words if re.fullmatch(r"/[a-z*/-]+", w) and w != "/proc"):
            if not any(case.strip("/*") in text(p) for p in sources):
                yield f"docs/THREATS.md: {', '.join(named)} have no case {case}"
        if line.startswith("| ") and not line.startswith(("| defence |", "| ---")) and not sources:
            yield f"docs/THREATS.md: no test stands beside: {line[:60]}"


def shell_scripts_parse():
    for path in FILES:
        head = text(path)[:64].splitlines()[:1]
        shell = {"#!/bin/sh": "sh", "#!/bin/bash": "bash"}.get(head[0] if head else "")
        if shell and shutil.which(shell):
            run = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
            if run.returncode:
                yield f"{name(path)}: {run.stderr.strip()}"


def the_rules_can_fail():
    """Each check of a text, given one that breaks it, says so."""
    if not list(measured_tests_are_shipped("shipped=(\n)\n")):
        yield "measured_tests_are_shipped did not see an empty list"
    if len(list(defences_have_their_tests("| a | b `runner/no_such_test` |\n| a | `runner/drop` `/no-such-case` |\n| a | fuzz `none` |\n| a | b |\n"))) != 6:
        yield "defences_have_their_tests did not see what is not there"
    global FILES, SOURCES
    kept = FILES, SOURCES
    broken = {
        arrows_point_down: '#include "queue/worker.h"\n',
        pure_rooms_stay_pure: "#include <unistd.h>\n",
        files_are_short: "\n" * (FILE_LINES_MAX + 1),
        functions_are_short: "int f(void)\n{\n" + "\n" * (FUNCTION_LINES_MAX + 1) + "}\n",
        lines_are_short: "int x; \n",
        licences_are_named: "int x;\n",
        hosts_are_not_named: "/* http:" "//mirror.test/ */\n",
    }
    folder = ROOT / "src" / "format"
    with tempfile.NamedTemporaryFile("w", suffix=".c", dir=folder if folder.is_dir() else ROOT / "src" / "base") as file:
        FILES = SOURCES = [pathlib.Path(file.name)]
        for rule, content in broken.items():
            if rule is pure_rooms_stay_pure and not folder.is_dir():
                continue
            pathlib.Path(file.name).write_text(content)
            if not list(rule()):
                yield f"{rule.__name__} did not see a broken text"
    FILES, SOURCES = kept


RULES = [arrows_point_down, pure_rooms_stay_pure, entry_is_libc_only, files_are_short, functions_are_short,
         lines_are_short, licences_are_named, hosts_are_not_named, headers_stand_alone, configuration_is_used,
         settings_are_in_the_table, measured_tests_are_shipped, defences_have_their_tests, shell_scripts_parse, the_rules_can_fail]


def main():
    print(f"1..{len(RULES)}")
    failed = 0
    for i, rule in enumerate(RULES, 1):
        places = list(rule())
        failed += bool(places)
        print(f"{'not ' if places else ''}ok {i} {rule.__name__.replace('_', ' ')}")
        for place in places:
            print(f"# {place}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
