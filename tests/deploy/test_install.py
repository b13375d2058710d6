#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install` puts everything where PREFIX says; the installed program finds its data; scripts/configure.sh changes the
prefix of a build that is there."""

import json
import os
import pathlib
import re
import subprocess
import tempfile

import tap

ROOT = pathlib.Path(os.environ["QUAVON_SOURCE_ROOT"])
BUILD = pathlib.Path(os.environ["QUAVON_BUILD_ROOT"])
MESON = os.environ["QUAVON_TEST_MESON"]
PREFIX = pathlib.PurePath(os.environ["QUAVON_TEST_PREFIX"])
WANTED = """
bin/quavon
sbin/quavon-sandbox-runner
sbin/quavon-sandbox-egress
libexec/quavon/entry
include/quavon/quavon.h
share/man/man1/quavon.1
share/man/man3/libquavon.3
share/man/man5/images.lock.json.5
share/man/man5/quavon-users.acl.5
share/man/man7/quavon-environment.7
share/man/man8/quavon-sandbox-runner.8
share/quavon/valkey/users.acl
share/quavon/images/sandbox/build.sh
share/quavon/images/sandbox/base/build
share/quavon/images/sandbox/base/packages.list
share/quavon/images/sandbox/node/packages.list
share/quavon/images/sandbox/recipe
share/quavon/images/sandbox/customize
share/quavon/images/sandbox/existing.py
share/quavon/images/sandbox/debian-mirror.sh
share/quavon/images/service/build.sh
share/quavon/images/service/pack.py
share/quavon/images/service/runner.packages
share/quavon/compose/quavon
share/quavon/compose/waiting.py
share/quavon/compose/compose.yaml
share/quavon/compose/registries.sh
share/quavon/compose/quavon-egress-network.service.in
share/bash-completion/completions/quavon
lib/systemd/system/quavon-sandbox-runner.service
lib/systemd/system/quavon-sandbox-egress.service
lib/systemd/system/quavon-egress-network.service
sbin/quavon-egress-network
""".split()


def run(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


class Installed:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="qv-test-")
        run(MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", self.folder.name)
        self.prefix = pathlib.Path(self.folder.name + str(PREFIX))
        return self

    def __exit__(self, *_):
        self.folder.cleanup()


def test_files():
    with Installed() as installed:
        missing = [name for name in WANTED if not (installed.prefix / name).is_file()]
        assert not missing, missing
        libraries = {path.name for path in installed.prefix.glob("lib/**/libquavon*")}
        assert {"libquavon.so", "libquavon.so.0", "libquavon.a"} <= libraries, libraries
        assert list(installed.prefix.glob("lib/**/pkgconfig/quavon.pc"))
        unit = (installed.prefix / "lib/systemd/system/quavon-sandbox-runner.service").read_text(encoding="utf-8")
        assert f"ExecStart={PREFIX}/sbin/quavon-sandbox-runner\n" in unit and "@sbindir@" not in unit
        # Nothing of the build's own place is in what text says.
        for path in installed.prefix.rglob("*"):
            if path.is_file() and path.stat().st_size < 100_000 and b"\x7fELF" != path.read_bytes()[:4]:
                assert str(ROOT).encode() not in path.read_bytes(), path


def test_target():
    """`make` builds the target `programs`: everything that is installed and is not there before a build."""
    made = {path for path in json.loads(run(MESON, "introspect", BUILD, "--installed")) if path.startswith(str(BUILD))}
    made = {str(pathlib.Path(path).relative_to(BUILD)) for path in made}
    at_setup = {path for path in made if path.startswith(("meson-private/", "deploy/"))}
    said = run("ninja", "-C", BUILD, "-t", "query", "programs")
    assert made - at_setup == set(re.findall(r"^ +\| (.*)", said, re.M)), said


def test_pages():
    """A page for each program, and every page that is written is installed; what they refer to of ours is there."""
    pages = {path.name.removesuffix(".scd") for path in (ROOT / "man").glob("*.scd")}
    with Installed() as installed:
        there = {path.name for path in (installed.prefix / "share" / "man").rglob("*.[1-8]")}
        assert pages == there, pages ^ there
        for folder in ("bin", "sbin", "libexec/quavon", "share/quavon/compose"):
            for path in (installed.prefix / folder).iterdir():
                if path.suffix or not os.access(path, os.X_OK):
                    continue
                name = {"entry": "quavon-entry"}.get(path.name, path.name)
                name = "quavon-compose" if folder.endswith("compose") else name
                assert [page for page in pages if page.rsplit(".", 1)[0] == name], path
    for path in (ROOT / "man").glob("*.scd"):
        for name, section in re.findall(r"\*((?:lib)?quavon[a-z.-]*|images\.lock\.json)\*\((\d)\)", path.read_text(encoding="utf-8")):
            assert f"{name}.{section}" in pages, (path.name, name, section)


def test_help():
    """Each verb explains itself, and so does each code."""
    with Installed() as installed:
        quavon = installed.prefix / "bin" / "quavon"
        verbs = re.findall(r"^  ([a-z]+) ", run(quavon, "help"), re.M)
        assert {"run", "doctor", "images", "keys", "pool", "help"} <= set(verbs), verbs
        for verb in verbs:
            said = run(quavon, "help", verb)
            assert f"quavon {verb}" in said or verb in ("version", "help"), (verb, said)
        codes = run(quavon, "help", "codes")
        for number in range(950, 959):
            assert f"QD{number}" in codes and run(quavon, "help", "codes", f"QD{number}").strip(), number


OPTION = re.compile(r"--([a-z][a-z-]*)")


def told_of(verb):
    """What the man pages tell of a verb: its own page, or its lines of the synopsis, its section and its paragraphs in quavon(1)."""
    text = (ROOT / "man" / "quavon.1.scd").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in text.split("\n# ")[1:])
    parts = [line for line in sections["SYNOPSIS"].splitlines() if line.startswith(f"*quavon {verb}*")]
    parts += [sections.get("QUAVON " + verb.upper(), "")]
    parts += [part for part in sections["OTHER VERBS"].split("\n\n") if f"*quavon {verb}*" in part]
    page = ROOT / "man" / f"quavon-{verb}.1.scd"
    return parts, page.read_text(encoding="utf-8") if page.exists() else None


def test_options_of_verbs():
    """What the program takes is what it tells, in both ways of asking, and what the pages tell; no page tells of more. An action of a
    verb is in its synopsis and in its page."""
    with Installed() as installed:
        quavon = installed.prefix / "bin" / "quavon"
        known = set()
        told = {}
        for verb in re.findall(r"^  ([a-z]+) ", run(quavon, "help"), re.M):
            said = run(quavon, "help", verb)
            if verb not in ("help", "version"):
                assert said == run(quavon, verb, "--help"), verb
            takes = set(OPTION.findall(said)) - {"help"}
            parts, page = told_of(verb)
            assert parts[0], verb
            # quavon(1) may leave them to a page of the verb's own.
            missing = takes - set(OPTION.findall(page if page is not None else "\n".join(parts)))
            assert not missing, (verb, missing)
            if page is not None:
                synopsis = page.split("# SYNOPSIS")[1].split("\n#")[0]
                more = set(OPTION.findall(synopsis)) - takes
                assert not more, (verb, more)
            # Words of a synopsis that are no option and no placeholder are actions.
            for action in re.findall(r"[a-z]+", re.sub(r"\[[^]]*\]", "", said.splitlines()[1]))[2:]:
                for text in [parts[0]] + ([synopsis] if page is not None else []):
                    assert re.search(rf"\*[^*]*\b{action}\b[^*]*\*", text), (verb, action)
            known |= takes
            told[verb] = "\n".join(parts)
        for verb, text in told.items():
            more = set(OPTION.findall(text)) - known
            assert not more, (verb, more)


def test_options_of_daemons():
    with Installed() as installed:
        for name in ("quavon-sandbox-runner", "quavon-sandbox-egress"):
            said = run(installed.prefix / "sbin" / name, "--help")
            page = (ROOT / "man" / (name + ".8.scd")).read_text(encoding="utf-8")
            parts = {part.split("\n", 1)[0]: part for part in page.split("\n# ")}
            takes = set(OPTION.findall(said.split("Configuration")[0]))
            assert {"check", "help", "version"} <= takes
            for part in ("SYNOPSIS", "OPTIONS"):
                assert set(OPTION.findall(parts[part])) == takes, (name, part)
            for option in takes - {"help"}:
                assert re.search(r"^  --" + option + r"\b", said, re.M), (name, option)


def test_moved_program():
    """An installation may be moved as a whole: its recipes are found beside it."""
    with Installed() as installed:
        quavon = installed.prefix / "bin" / "quavon"
        environment = {"PATH": os.environ["PATH"], "QUAVON_SANDBOX_STATE_DIR": installed.folder.name + "/state",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "")}
        done = subprocess.run([quavon, "images", "build", "no-such-recipe"], capture_output=True, text=True, check=False,
                              env=environment)
        if os.geteuid() == 0:
            assert done.returncode == 66, (done.returncode, done.stderr)
            assert str(installed.prefix) in done.stderr, done.stderr
        assert run(quavon, "version", env=environment).startswith("quavon ")


def test_completion():
    with Installed() as installed:
        script = f"""
source {installed.prefix}/share/bash-completion/completions/quavon
complete_words() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quavon; printf '%s\\n' "${{COMPREPLY[@]}}"; }}
complete_words {installed.prefix}/bin/quavon ''
echo --
complete_words {installed.prefix}/bin/quavon run --ima
echo --
complete_words {installed.prefix}/bin/quavon images b
"""
        verbs, option, action = run("bash", "-c", script).split("\n--\n")
        assert {"run", "images", "wait", "help"} <= set(verbs.split()), verbs
        assert option.split() == ["--image"], option
        assert action.split() == ["build"], action


def test_prefix_at_any_time():
    if os.environ.get("QUAVON_TEST_LONG") != "1":
        raise tap.Skip("sets up a build of its own; QUAVON_TEST_LONG=1")
    with tempfile.TemporaryDirectory(prefix="qv-test-") as folder:
        build = folder + "/build"
        for prefix in ("/usr/local", "/opt/quavon", "/opt/quavon"):
            run(ROOT / "scripts" / "configure.sh", build, prefix, cwd=ROOT)
            options = run(MESON, "introspect", build, "--buildoptions")
            assert f'"name": "prefix", "value": "{prefix}"' in options


if __name__ == "__main__":
    tap.main(globals())
