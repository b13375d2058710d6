#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""registry.py FOLDER PEM HOST: a TLS server on the loopback that plays the registries of pip, cargo, go, gem and maven,
each with one small package, under one name. It writes FOLDER/port when it listens, and FOLDER/go.sum; the log of its requests
is FOLDER/requests.

Plain files, but for cargo's index, which is a git repository over smart http."""

import base64
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tarfile
import zipfile

TEXT = "hello from the registry"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else content.encode()
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def make_pip(root):
    info = "hello-1.0.dist-info/"
    files = {"hello.py": f'text = "{TEXT}"\n', info + "METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
             info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             info + "RECORD": f"hello.py,,\n{info}METADATA,,\n{info}WHEEL,,\n{info}RECORD,,\n"}
    wheel = zipped(files)
    put(root / "files/hello-1.0-py3-none-any.whl", wheel)
    put(root / "simple/hello/index.html",
        f'<!DOCTYPE html><a href="/files/hello-1.0-py3-none-any.whl#sha256={sha256(wheel)}">hello-1.0-py3-none-any.whl</a>\n')


def git(folder, *words):
    subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", folder, *words], check=True,
                   stdout=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"})


def make_cargo(root, url):
    crate = tarred({"hello-1.0.0/Cargo.toml": '[package]\nname = "hello"\nversion = "1.0.0"\n',
                    "hello-1.0.0/src/lib.rs": f'pub const TEXT: &str = "{TEXT}";\n'})
    put(root / "crates/hello/1.0.0/download", crate)
    row = json.dumps({"name": "hello", "vers": "1.0.0", "deps": [], "cksum": sha256(crate), "features": {}, "yanked": False}) + "\n"
    config = json.dumps({"dl": f"{url}/crates", "api": None}) + "\n"
    work = root.parent / "index-work"
    put(work / "config.json", config)
    put(work / "he/ll/hello", row)
    git(work, "init", "-q", "-b", "master")
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    git(root.parent, "clone", "-q", "--bare", work, root / "index.git")


def go_hash(files):
    lines = "".join(f"{sha256(content.encode())}  {name}\n" for name, content in sorted(files.items()))
    return "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()


def make_go(root):
    module, prefix = "example.org/hello", "example.org/hello@v1.0.0/"
    mod = f"module {module}\n\ngo 1.19\n"
    files = {prefix + "go.mod": mod, prefix + "hello.go": f'package hello\n\nconst Text = "{TEXT}"\n'}
    base = root / "go/example.org/hello/@v"
    put(base / "list", "v1.0.0\n")
    put(base / "v1.0.0.info", '{"Version":"v1.0.0","Time":"2025-01-01T00:00:00Z"}')
    put(base / "v1.0.0.mod", mod)
    put(base / "v1.0.0.zip", zipped(files))
    put(root.parent / "go.sum", f"{module} v1.0.0 {go_hash(files)}\n{module} v1.0.0/go.mod {go_hash({'go.mod': mod})}\n")


def make_gem(root):
    metadata = "\n".join([
        "--- !ruby/object:Gem::Specification", "name: hello", "version: !ruby/object:Gem::Version", "  version: 1.0.0",
        "platform: ruby", "authors: [test]", "date: 2025-01-01 00:00:00.000000000 Z", "dependencies: []", "summary: hello",
        "files: [lib/hello.rb]", "require_paths: [lib]", "rubygems_version: 3.3.15", "specification_version: 4",
        "required_ruby_version: !ruby/object:Gem::Requirement", "  requirements:", "  - - \">=\"",
        "    - !ruby/object:Gem::Version", "      version: '0'", "required_rubygems_version: !ruby/object:Gem::Requirement",
        "  requirements:", "  - - \">=\"", "    - !ruby/object:Gem::Version", "      version: '0'", ""])
    gem = tarred({"metadata.gz": gzip.compress(metadata.encode()),
                  "data.tar.gz": tarred({"lib/hello.rb": f'HELLO = "{TEXT}"\n'})}, "w")
    row = f"---\n1.0.0 |checksum:{sha256(gem)}\n"
    put(root / "gems/gems/hello-1.0.0.gem", gem)
    put(root / "gems/info/hello", row)
    put(root / "gems/names", "---\nhello\n")
    put(root / "gems/versions", f"created_at: 2025-01-01T00:00:00Z\n---\nhello 1.0.0 {hashlib.md5(row.encode()).hexdigest()}\n")


def make_maven(root):
    def artefact(name, extension, content, group="org/example", version="1.0"):
        path = root / f"maven/{group}/{name}/{version}/{name}-{version}.{extension}"
        put(path, content)
        put(path.with_name(path.name + ".sha1"), hashlib.sha1(path.read_bytes()).hexdigest())

    def pom(name, packaging, group="org.example", version="1.0"):
        return (f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{name}</artifactId>"
                f"<version>{version}</version><packaging>{packaging}</packaging><name>{TEXT}</name></project>\n")
    artefact("parent", "pom", pom("parent", "pom"))
    artefact("hello", "pom", pom("hello", "jar"))
    artefact("hello", "jar", zipped({"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\n", "hello.txt": TEXT}))
    # What maven lays beside every extension.
    plexus = {"group": "org/codehaus/plexus", "version": "1.1"}
    artefact("plexus-utils", "pom", pom("plexus-utils", "jar", "org.codehaus.plexus", "1.1"), **plexus)
    artefact("plexus-utils", "jar", zipped({"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\n"}), **plexus)


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder = None

    def log_message(self, form, *words):
        with open(self.folder / "requests", "a", encoding="utf-8") as log:
            log.write(form % words + "\n")

    def git(self, body):
        path, _, query = self.path.partition("?")
        environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.directory, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                       "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
                       "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1", "GIT_CONFIG_COUNT": "1",
                       "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
            environment["CONTENT_LENGTH"] = str(len(body))
        out = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE, check=True).stdout
        head, _, content = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        if self.path.startswith("/index.git/"):
            self.git(b"")
        else:
            super().do_GET()

    def do_POST(self):
        self.git(self.rfile.read(int(self.headers.get("Content-Length", "0"))))


def main():
    folder, pem, host = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    root = folder / "served"
    root.mkdir(parents=True)
    Handler.folder = folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    url = f"https://{host}:{server.server_address[1]}"
    make_pip(root)
    make_cargo(root, url)
    make_go(root)
    make_gem(root)
    make_maven(root)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    (folder / "port.new").write_text(str(server.server_address[1]))
    (folder / "port.new").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main()
