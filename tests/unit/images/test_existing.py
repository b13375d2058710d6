#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_existing.py EXISTING VECTORS: the merging of an existing image's layers, on archives made here. TAP on stdout."""

import gzip
import hashlib
import http.server
import io
import json
import os
import platform
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import threading
import traceback

EXISTING = os.path.abspath(sys.argv[1])
VECTORS = sys.argv[2]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def layer(*entries):
    """Entries: (path, bytes) file; (path, None) folder; (path, "symlink", to); (path, "link", to); (path, "dev")."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, *rest in entries:
            info = tarfile.TarInfo(path)
            info.mode, info.uid, info.gid = 0o755, 7, 8
            if rest == [None]:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif rest[0] == "symlink":
                info.type, info.linkname = tarfile.SYMTYPE, rest[1]
                tar.addfile(info)
            elif rest[0] == "link":
                info.type, info.linkname = tarfile.LNKTYPE, rest[1]
                tar.addfile(info)
            elif rest[0] == "dev":
                info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 3
                tar.addfile(info)
            else:
                info.size = len(rest[0])
                tar.addfile(info, io.BytesIO(rest[0]))
    return out.getvalue()


def config_of(layers, **changes):
    value = {"architecture": ARCHITECTURE, "os": "linux", "config": {"Env": ["PATH=/x", "A=1"]},
             "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(l) for l in layers]}}
    value.update(changes)
    return json.dumps(value).encode()


def pack(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def docker_archive(layers, packed=bytes, **changes):
    """(archive, hex of the image id)"""
    config = config_of(layers, **changes)
    hex_digits = sha(config)
    files = {f"{hex_digits}.json": config}
    names = []
    for i, data in enumerate(layers):
        names.append(f"{i}/layer.tar")
        files[names[-1]] = packed(data)
    files["manifest.json"] = json.dumps([{"Config": f"{hex_digits}.json", "RepoTags": ["x:latest"], "Layers": names}]).encode()
    return pack(files), hex_digits


def oci_archive(layers):
    """(archive, hex of the manifest, hex of the index)"""
    config = config_of(layers)
    blobs = {sha(config): config}
    packed = [gzip.compress(l, mtime=0) for l in layers]
    blobs.update({sha(l): l for l in packed})
    manifest = json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + sha(config)},
                           "layers": [{"digest": "sha256:" + sha(l)} for l in packed]}).encode()
    blobs[sha(manifest)] = manifest
    index = json.dumps({"manifests": [
        {"digest": "sha256:" + "0" * 64, "platform": {"architecture": "s390x", "os": "linux"}},
        {"digest": "sha256:" + sha(manifest), "platform": {"architecture": ARCHITECTURE, "os": "linux"}}]}).encode()
    blobs[sha(index)] = index
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
    files.update({"blobs/sha256/" + name: data for name, data in blobs.items()})
    return pack(files), sha(manifest), sha(index)


class Case:
    def __init__(self, folder):
        self.folder = folder
        self.environment = dict(os.environ)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, reference):
        return subprocess.run([sys.executable, EXISTING, reference, self.path("out.tar"), self.path("env")],
                              capture_output=True, text=True, cwd=self.folder, env=self.environment, check=False)

    def archive(self, data, hex_digits):
        with open(self.path("image.tar"), "wb") as file:
            file.write(data)
        return self.run(f"./image.tar@sha256:{hex_digits}")

    def tree(self, data, hex_digits):
        run = self.archive(data, hex_digits)
        assert run.returncode == 0, run.stderr
        return self.read()

    def read(self):
        found = {}
        with tarfile.open(self.path("out.tar")) as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                found[name] = ("dir" if member.isdir() else "-> " + member.linkname if member.issym() else
                               "= " + member.linkname if member.islnk() else tar.extractfile(member).read())
                assert member.isdir() or (member.uid, member.gid) == (7, 8)
        return found

    def refused(self, data, hex_digits, words):
        run = self.archive(data, hex_digits)
        assert run.returncode == 1, (run.returncode, run.stderr)
        assert words in run.stderr, run.stderr
        assert not os.path.exists(self.path("out.tar"))


def test_layers(case):
    one = layer(("etc", None), ("etc/a", b"1"), ("etc/b", b"2"), ("full", None), ("full/x", b"x"), ("full/y", b"y"),
                ("kind", b"file"), ("gone", None), ("gone/deep", b"d"), ("bin", "symlink", "usr/bin"), ("usr/bin", None),
                ("dev/null", "dev"))
    two = layer(("etc/a", b"new"), ("etc/.wh.b", b""), ("full/.wh..wh..opq", b""), ("full/z", b"z"), ("kind", None),
                ("kind/below", b"k"), (".wh.gone", b""), ("bin/tool", b"t"))
    data, hex_digits = docker_archive([one, two])
    assert case.tree(data, hex_digits) == {
        "bin": "-> usr/bin", "etc": "dir", "etc/a": b"new", "full": "dir", "full/z": b"z", "kind": "dir", "kind/below": b"k",
        "usr": "dir", "usr/bin": "dir", "usr/bin/tool": b"t"}
    with open(case.path("env"), encoding="utf-8") as file:
        assert file.read() == "PATH=/x\nA=1\n"


def test_hard_links(case):
    one = layer(("a", b"same"), ("b", "link", "a"), ("c", b"other"))
    two = layer(("a", b"new"), ("d", "link", "c"), (".wh.c", b""))
    data, hex_digits = docker_archive([one, two])
    assert case.tree(data, hex_digits) == {"a": b"new", "b": b"same", "d": b"other"}
    data, hex_digits = docker_archive([one])
    assert case.tree(data, hex_digits) == {"a": b"same", "b": "= ./a", "c": b"other"}
    os.unlink(case.path("out.tar"))
    case.refused(*docker_archive([layer(("a", "link", "nowhere"))]), "not there")


def test_links_stay_inside(case):
    """Names alone: a link out of the tree is a link, and what is written through it lands in the tree."""
    one = layer(("out", "symlink", "/etc"), ("up", "symlink", "../../.."), ("loop", "symlink", "loop"))
    two = layer(("out/passwd", b"p"), ("up/file", b"f"))
    data, hex_digits = docker_archive([one, two])
    assert case.tree(data, hex_digits) == {"out": "-> /etc", "up": "-> ../../..", "loop": "-> loop", "etc": "dir",
                                           "etc/passwd": b"p", "file": b"f"}
    os.unlink(case.path("out.tar"))
    data, hex_digits = docker_archive([one, layer(("loop/x", b"x"))])
    case.refused(data, hex_digits, "too many links")
    data, hex_digits = docker_archive([layer(("a/../../x", b"x"))])
    case.refused(data, hex_digits, "goes up")


def test_oci(case):
    data, manifest, index = oci_archive([layer(("a", b"1")), layer(("b", b"2"))])
    assert case.tree(data, manifest) == {"a": b"1", "b": b"2"}
    assert case.tree(data, index) == {"a": b"1", "b": b"2"}


def test_compressed(case):
    data, hex_digits = docker_archive([layer(("a", b"1" * 100000))], packed=gzip.compress)
    assert case.tree(data, hex_digits) == {"a": b"1" * 100000}


def test_refused(case):
    plain = layer(("a", b"1"))
    data, hex_digits = docker_archive([plain])
    case.refused(data, "0" * 64, "does not hold the image")
    case.refused(data.replace(b'"A=1"', b'"A=2"'), hex_digits, "does not hold the image")
    bad, bad_hex = docker_archive([plain], packed=lambda l: l.replace(b"1", b"2", 1))
    case.refused(bad, bad_hex, "is not the layer")
    case.refused(b"no tar at all" * 100, hex_digits, "not a tar archive")
    case.refused(*docker_archive([plain], architecture="s390x"), "this machine is linux/")
    case.refused(*docker_archive([plain], os="windows"), "this machine is linux/")
    case.refused(*docker_archive([plain], config={"Env": ["A=1\nB=2"]}), "is no NAME=value")
    case.refused(*docker_archive([plain], config={"Env": ["=1"]}), "is no NAME=value")
    case.refused(*docker_archive([plain], rootfs={"diff_ids": []}), "layers")
    case.refused(*docker_archive([plain], rootfs=7), "has not the form")
    case.refused(*docker_archive([plain], packed=lambda l: b"\x28\xb5\x2f\xfd" + l), "zstd")
    run = case.run("./absent.tar@sha256:" + "0" * 64)
    assert run.returncode == 1 and "absent.tar" in run.stderr


def test_no_path_in_env(case):
    data, hex_digits = docker_archive([layer(("a", b"1"))], config=None)
    case.tree(data, hex_digits)
    with open(case.path("env"), encoding="utf-8") as file:
        assert file.read().startswith("PATH=/usr/local/sbin:")


def test_references(case):
    """Tags are refused everywhere; every published case has its verdict."""
    case.environment["QUAVON_SANDBOX_DOCKER_SOCKET"] = case.path("absent.sock")
    digest = "@sha256:" + "f" * 64
    cases = [("name", False), ("name:tag", False), ("name:tag" + digest, False), (digest, False), ("./file.tar", False),
             ("name@sha256:" + "F" * 64, False), ("name@md5:" + "f" * 32, False), ("f" * 64 + digest, False),
             ("name" + digest, True), ("host:5000/a/b" + digest, True), ("-x" + digest, False)]
    if os.path.exists(os.path.join(VECTORS, "imageref", "cases.jsonl")):
        with open(os.path.join(VECTORS, "imageref", "cases.jsonl"), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        assert len(rows) == 44
        print(f"# imageref: {len(rows)} cases")
        cases += [(row["input"], row["pinned_only_verdict"] == "ACCEPT") for row in rows]
    for text, good in cases:
        run = case.run(text)
        assert run.returncode == 1, (text, run.stderr)
        # A good one goes on to the engine, which is not there.
        assert ("is Docker running" in run.stderr) == good, (text, run.stderr)


class FakeEngine(http.server.BaseHTTPRequestHandler):
    """Knows one image, by id and by one repository digest; gives what it was told to give."""
    image = b""
    own_id = ""
    answer_id = ""

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def do_GET(self):
        known = {f"/images/sha256:{self.own_id}/json", "/images/host/name@sha256:" + "a" * 64 + "/json"}
        if self.path in known:
            body = json.dumps({"Id": "sha256:" + self.answer_id, "RepoDigests": ["host/name@sha256:" + "a" * 64]}).encode()
        elif self.path == f"/images/sha256:{self.answer_id}/get":
            body = self.image
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def test_engine(case):
    data, hex_digits = docker_archive([layer(("a", b"1"))])
    FakeEngine.image, FakeEngine.own_id, FakeEngine.answer_id = data, hex_digits, hex_digits
    case.environment["QUAVON_SANDBOX_DOCKER_SOCKET"] = case.path("sock")
    with UnixServer(case.path("sock"), FakeEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for reference in ("anything@sha256:" + hex_digits, "host/name@sha256:" + "a" * 64):
            run = case.run(reference)
            assert run.returncode == 0, run.stderr
            assert case.read() == {"a": b"1"}
            os.unlink(case.path("out.tar"))
        run = case.run("host/name@sha256:" + "b" * 64)
        assert run.returncode == 1 and "has no image" in run.stderr, run.stderr
        FakeEngine.answer_id = "c" * 64
        run = case.run("anything@sha256:" + hex_digits)
        assert run.returncode == 1 and "not the one that was asked for" in run.stderr, run.stderr
        server.shutdown()


def main():
    tests = [(name, function) for name, function in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        with tempfile.TemporaryDirectory(prefix="qv-test-") as folder:
            try:
                function(Case(folder))
                print(f"ok {number} {name}")
            except Exception:
                failed += 1
                print(f"not ok {number} {name}")
                for line in traceback.format_exc().splitlines():
                    print("# " + line)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
