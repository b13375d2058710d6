#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make deb`: four packages, what is in them, policy by lintian, the same bytes twice, scripts that start nothing."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import tap

ROOT = pathlib.Path(os.environ["QUAVON_SOURCE_ROOT"])
WANTED = {
    "quavon": ["usr/bin/quavon", "usr/libexec/quavon/entry", "usr/share/quavon/valkey/users.acl",
               "usr/share/quavon/images/sandbox/recipe", "usr/share/quavon/compose/quavon", "usr/share/man/man1/quavon.1.gz",
               "usr/share/man/man5/images.lock.json.5.gz", "usr/share/bash-completion/completions/quavon"],
    "quavon-sandbox-runner": ["usr/sbin/quavon-sandbox-runner", "lib/systemd/system/quavon-sandbox-runner.service",
                              "usr/share/man/man8/quavon-sandbox-runner.8.gz", "usr/sbin/quavon-sandbox-egress",
                              "lib/systemd/system/quavon-sandbox-egress.service",
                              "usr/sbin/quavon-egress-network", "lib/systemd/system/quavon-egress-network.service",
                              "usr/share/man/man8/quavon-sandbox-egress.8.gz",
                              "usr/share/man/man8/quavon-egress-network.8.gz",
                              "usr/share/doc/quavon-sandbox-runner/examples/runner.env",
                              "usr/share/doc/quavon-sandbox-runner/examples/egress.env"],
    "libquavon0": ["usr/lib/*/libquavon.so.0"],
    "libquavon-dev": ["usr/include/quavon/quavon.h", "usr/lib/*/libquavon.a", "usr/lib/*/libquavon.so",
                      "usr/lib/*/pkgconfig/quavon.pc", "usr/share/man/man3/libquavon.3.gz"],
}


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, (words, done.stdout[-4000:])
    return done.stdout


def packages():
    return {path.name.split("_")[0]: path for path in (ROOT / "build" / "deb").glob("*.deb")}


def test_built_twice_the_same():
    run(ROOT / "scripts" / "deb.sh")
    first = {name: path.read_bytes() for name, path in packages().items()}
    assert set(first) == set(WANTED), sorted(first)
    run(ROOT / "scripts" / "deb.sh")
    for name, path in packages().items():
        assert path.read_bytes() == first[name], name


def test_contents():
    with tempfile.TemporaryDirectory(prefix="qv-test-") as folder:
        for name, path in packages().items():
            target = pathlib.Path(folder, name)
            run("dpkg-deb", "--extract", path, target)
            for pattern in WANTED[name]:
                # Not Path.glob: it does not see a link whose target is in another package.
                found = [p for p in target.rglob("*") if p.relative_to(target).match(pattern)]
                assert found, (name, pattern)
            assert (target / "usr/share/doc" / name / "copyright").is_file()
        assert run(pathlib.Path(folder, "quavon/usr/bin/quavon"), "version").startswith("quavon ")
        unit = pathlib.Path(folder, "quavon-sandbox-runner/lib/systemd/system/quavon-sandbox-runner.service").read_text()
        assert "ExecStart=/usr/sbin/quavon-sandbox-runner\n" in unit
        # The library that was packed is the one that its shlibs name, and needs what its package depends on.
        depends = run("dpkg-deb", "--field", packages()["libquavon0"], "Depends")
        for library in ("libc6", "libglib2.0-0", "libhiredis0.14", "libssl3", "libgit2"):
            assert library in depends, depends


def test_policy():
    if shutil.which("lintian") is None:
        raise tap.Skip("lintian is not installed: make deps")
    said = run("lintian", "--no-cfg", "--allow-root", "--fail-on", "error,warning", *packages().values())
    assert not [line for line in said.splitlines() if line.startswith(("E:", "W:"))], said


def test_scripts_start_nothing():
    """On a machine without a running systemd they do nothing; with one they ask for no start: try-restart leaves what does not
    run as it is."""
    with tempfile.TemporaryDirectory(prefix="qv-test-") as folder:
        run("dpkg-deb", "--control", packages()["quavon-sandbox-runner"], folder)
        log = pathlib.Path(folder, "log")
        for name in ("systemctl", "deb-systemd-invoke", "invoke-rc.d", "update-rc.d", "rm"):
            stub = pathlib.Path(folder, name)
            stub.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
            stub.chmod(0o755)
        # The scripts as they are, but for where they look for systemd.
        for script, arguments in (("postinst", ["configure", ""]), ("postinst", ["configure", "0.0.1"]), ("prerm", ["remove"]),
                                  ("postrm", ["remove"]), ("postrm", ["purge"])):
            for there in (True, False):
                text = pathlib.Path(folder, script).read_text()
                assert "/run/systemd/system" in text
                path = pathlib.Path(folder, "tried")
                path.write_text(text.replace("/run/systemd/system", folder if there else folder + "/absent"))
                log.write_text("")
                run("sh", path, *arguments, env={"PATH": folder + ":/bin:/usr/bin"})
                said = log.read_text()
                for word in (" start ", " enable ", " restart "):
                    assert word not in said, (script, arguments, said)
                if not there:
                    assert "systemd" not in said and "systemctl" not in said, (script, said)
                if script == "postinst" and there:
                    assert ("try-restart" in said) == (arguments[1] != ""), said
                if script == "postrm":
                    assert ("/var/lib/quavon" in said) == (arguments == ["purge"]), said


if __name__ == "__main__":
    tap.main(globals())
