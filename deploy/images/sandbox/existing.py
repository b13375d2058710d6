#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""existing.py FROM TAR ENV: the tree of an existing image as one tar, its environment as lines.

FROM is NAME@sha256:HEX. A NAME that begins with /, ./ or ../ is a file: what `docker save` writes, or an OCI image
layout as a tar. Another is an image of the engine at QUAVON_SANDBOX_DOCKER_SOCKET (/run/docker.sock), which is asked
for the same. HEX is the SHA-256 of the image's config (Docker's image id), of its manifest, or for an image of
the engine also a repository digest that the engine knows it by. A tag is refused: it may be another image tomorrow.

Everything is checked before a byte of the tree is written: the config or manifest against HEX, each layer's bytes
against the config's diff_ids, the platform against this machine. Layers are laid over each other by name alone, in memory
and without a file system; so nothing in them can reach out of the tree. Device nodes are left out. The archive may be
hostile: its sizes and counts are capped.
"""

import bz2
import gzip
import hashlib
import http.client
import json
import lzma
import os
import platform
import re
import shutil
import socket
import sys
import tarfile
import tempfile
import urllib.parse

JSON_BYTES_MAX = 4 << 20
LAYERS_MAX = 256
LAYER_BYTES_MAX = 16 << 30
ENTRIES_MAX = 2_000_000
LINKS_MAX = 40
ENGINE_SECONDS = 600
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
HOST = r"(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
NAME = re.compile(rf"(?:{HOST}/)?{PART}(?:/{PART})*")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Refused(Exception):
    pass


def parse_reference(text):
    """(file or None, name, hex)"""
    name, found, digest = text.rpartition("@")
    if not found or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise Refused(f"{text}: name the image by digest, NAME@sha256:<64 hex digits>; tags are refused")
    hex_digits = digest.removeprefix("sha256:")
    if name.startswith(("/", "./", "../")):
        return name, name, hex_digits
    if not NAME.fullmatch(name) or len(name) > 255 or re.fullmatch(r"[0-9a-f]{64}", name):
        raise Refused(f"{text}: {name} is no image's name, or has a tag; tags are refused")
    return None, name, hex_digits


# ---- the engine ----

class Engine(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=ENGINE_SECONDS)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self.path)
        except OSError as error:
            raise Refused(f"{self.path}: {error.strerror}: is Docker running? QUAVON_SANDBOX_DOCKER_SOCKET names its socket")


def engine_get(path):
    connection = Engine(os.environ.get("QUAVON_SANDBOX_DOCKER_SOCKET") or "/run/docker.sock")
    connection.request("GET", path)
    return connection.getresponse()


def save_from_engine(name, hex_digits, file):
    """Writes what the engine saves; returns the digest that it has to have."""
    for reference in (f"{name}@sha256:{hex_digits}", f"sha256:{hex_digits}"):
        answer = engine_get(f"/images/{urllib.parse.quote(reference, safe='/:@')}/json")
        body = answer.read(JSON_BYTES_MAX)
        if answer.status == 404:
            continue
        if answer.status != 200:
            raise Refused(f"the engine answers {answer.status}: {body[:200]!r}")
        image = json.loads(body)
        known = [image["Id"]] + [digest.rpartition("@")[2] for digest in image.get("RepoDigests") or []]
        if f"sha256:{hex_digits}" not in known:
            raise Refused(f"the engine gave image {image['Id']}, which is not the one that was asked for")
        answer = engine_get(f"/images/{image['Id']}/get")
        if answer.status != 200:
            raise Refused(f"the engine does not give the image: {answer.status}")
        shutil.copyfileobj(answer, file, 1 << 20)
        file.seek(0)
        return image["Id"].removeprefix("sha256:")
    raise Refused(f"the engine has no image {name}@sha256:{hex_digits}: pull or load it first")


# ---- the archive ----

class Archive:
    """Files of a tar by name, small ones as bytes."""

    def __init__(self, file):
        try:
            self.tar = tarfile.open(fileobj=file, mode="r:")
            self.members = {os.path.normpath(m.name): m for m in self.tar}
        except tarfile.TarError as error:
            raise Refused(f"not a tar archive: {error}")

    def member(self, name):
        member = self.members.get(os.path.normpath(name))
        for _ in range(LINKS_MAX):
            if member is None or not (member.issym() or member.islnk()):
                break
            # `docker save` of older engines: a layer that is there twice.
            target = member.linkname if member.islnk() else os.path.join(os.path.dirname(member.name), member.linkname)
            member = self.members.get(os.path.normpath(target))
        if member is None or not member.isfile():
            raise Refused(f"the archive has no file {name}")
        return member

    def bytes(self, name):
        member = self.member(name)
        if member.size > JSON_BYTES_MAX:
            raise Refused(f"{name} is larger than {JSON_BYTES_MAX} bytes")
        return self.tar.extractfile(member).read()

    def blob(self, digest):
        if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise Refused(f"{digest!r} is no SHA-256 digest")
        return "blobs/sha256/" + digest.removeprefix("sha256:")

    def checked(self, name, digest):
        body = self.bytes(name)
        if "sha256:" + hashlib.sha256(body).hexdigest() != digest:
            raise Refused(f"{name} is not {digest}")
        return json.loads(body)


def from_manifest(archive, digest):
    """Config and layers' names by a manifest (or an index of manifests) of that digest."""
    for _ in range(3):
        manifest = archive.checked(archive.blob(digest), digest)
        if "manifests" not in manifest:
            config = manifest["config"]["digest"]
            return archive.checked(archive.blob(config), config), [archive.blob(l["digest"]) for l in manifest["layers"]]
        ours = [m["digest"] for m in manifest["manifests"]
                if m.get("platform", {}).get("architecture") == ARCHITECTURES.get(platform.machine())
                and m.get("platform", {}).get("os") == "linux"]
        if len(ours) != 1:
            raise Refused("the image is not for this platform")
        digest = ours[0]
    raise Refused("indexes of indexes")


def find(archive, hex_digits):
    """The config as a value and the names of its layers, checked against HEX."""
    digest = "sha256:" + hex_digits
    if archive.blob(digest) in archive.members:
        body = archive.checked(archive.blob(digest), digest)
        if "rootfs" not in body:
            return from_manifest(archive, digest)
    if "manifest.json" not in archive.members:
        raise Refused(f"the archive does not hold the image {digest}")
    for image in json.loads(archive.bytes("manifest.json")):
        if hashlib.sha256(archive.bytes(image["Config"])).hexdigest() == hex_digits:
            return archive.checked(image["Config"], digest), image["Layers"]
    raise Refused(f"the archive does not hold the image {digest}")


def plain_layer(archive, name, diff_id, folder):
    """A layer, unpacked, whose SHA-256 is what the config says."""
    source = archive.tar.extractfile(archive.member(name))
    magic = source.read(6)
    source.seek(0)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise Refused(f"{name} is compressed with zstd: save the image with gzip or none")
    opened = (gzip.open(source) if magic.startswith(b"\x1f\x8b") else
              bz2.open(source) if magic.startswith(b"BZh") else lzma.open(source) if magic == b"\xfd7zXZ\0" else source)
    out = tempfile.TemporaryFile(dir=folder)
    digest = hashlib.sha256()
    n = 0
    while piece := opened.read(1 << 20):
        n += len(piece)
        if n > LAYER_BYTES_MAX:
            raise Refused(f"{name} is larger than {LAYER_BYTES_MAX} bytes")
        digest.update(piece)
        out.write(piece)
    if "sha256:" + digest.hexdigest() != diff_id:
        raise Refused(f"{name} is not the layer {diff_id} of the config")
    out.seek(0)
    return tarfile.open(fileobj=out, mode="r:")


# ---- the tree ----

class Tree:
    """Path (without a first slash) to (layer, member). Hard links share the value of what they link to."""

    def __init__(self):
        self.nodes = {}
        self.children = {}

    def parts(self, path):
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise Refused(f"{path!r} goes up")
        return parts

    def resolve(self, parts):
        """The folder that PARTS name, through the tree's own links; links that leave it end at its root."""
        done, todo, links = [], list(parts), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                del done[-1:]
                continue
            node = self.nodes.get("/".join(done + [part]))
            if node is None or not node[1].issym():
                done.append(part)
                continue
            links += 1
            if links > LINKS_MAX:
                raise Refused(f"too many links at {'/'.join(parts)!r}")
            target = node[1].linkname
            if target.startswith("/"):
                done = []
            todo = [p for p in target.split("/") if p not in ("", ".")] + todo
        return "/".join(done)

    def remove(self, path):
        for child in list(self.children.get(path, ())):
            self.remove(path + "/" + child if path else child)
        self.nodes.pop(path, None)
        if path:
            folder, _, name = path.rpartition("/")
            self.children.get(folder, set()).discard(name)

    def put(self, path, node):
        old = self.nodes.get(path)
        if old is not None and not (old[1].isdir() and node[1].isdir()):
            self.remove(path)
        folder, _, name = path.rpartition("/")
        if folder and (folder not in self.nodes or not self.nodes[folder][1].isdir()):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            self.put(folder, (None, info))
        self.nodes[path] = node
        self.children.setdefault(folder, set()).add(name)
        if len(self.nodes) > ENTRIES_MAX:
            raise Refused(f"more than {ENTRIES_MAX} files")

    def add_layer(self, layer):
        own = set()
        for member in layer:
            parts = self.parts(member.name)
            if not parts:
                continue
            folder = self.resolve(parts[:-1])
            path = folder + "/" + parts[-1] if folder else parts[-1]
            if parts[-1] == ".wh..wh..opq":
                for child in list(self.children.get(folder, ())):
                    below = folder + "/" + child if folder else child
                    if below not in own:
                        self.remove(below)
            elif parts[-1].startswith(".wh."):
                hidden = parts[-1][len(".wh."):]
                self.remove(folder + "/" + hidden if folder else hidden)
            elif member.islnk():
                target = self.parts(member.linkname)
                node = self.nodes.get("/".join(filter(None, [self.resolve(target[:-1]), target[-1]])) if target else "")
                if node is None or node[1].isdir():
                    raise Refused(f"{member.name!r} links to {member.linkname!r}, which is not there")
                self.put(path, node)
                own.add(path)
            elif member.isfile() or member.isdir() or member.issym():
                self.put(path, (layer, member))
                own.add(path)

    def write(self, file):
        first = {}
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as out:
            for path in sorted(self.nodes):
                layer, member = self.nodes[path]
                info = tarfile.TarInfo("./" + path)
                info.type, info.mode, info.uid, info.gid = member.type, member.mode & 0o7777, member.uid, member.gid
                info.linkname, info.size = member.linkname, 0
                if not member.isfile():
                    out.addfile(info)
                elif id(member) in first:
                    info.type, info.linkname = tarfile.LNKTYPE, first[id(member)]
                    out.addfile(info)
                else:
                    first[id(member)] = info.name
                    info.type, info.size, info.linkname = tarfile.REGTYPE, member.size, ""
                    out.addfile(info, layer.extractfile(member))


def environment(config):
    lines = (config.get("config") or {}).get("Env") or []
    for line in lines:
        if not isinstance(line, str) or "=" not in line[1:] or re.search(r"[\0-\x1f\x7f]", line):
            raise Refused(f"{line!r} of the image's environment is no NAME=value on one line")
    return lines if any(line.startswith("PATH=") for line in lines) else [PATH] + lines


def merge(file, hex_digits, tar_file, env_file):
    archive = Archive(file)
    config, names = find(archive, hex_digits)
    wanted = ARCHITECTURES.get(platform.machine())
    if config.get("os") != "linux" or config.get("architecture") != wanted:
        raise Refused(f"the image is for {config.get('os')}/{config.get('architecture')}, this machine is linux/{wanted}")
    diff_ids = config["rootfs"]["diff_ids"]
    if len(names) != len(diff_ids) or len(names) > LAYERS_MAX:
        raise Refused(f"{len(names)} layers, where the config has {len(diff_ids)} (at most {LAYERS_MAX})")
    lines = environment(config)
    tree = Tree()
    folder = os.path.dirname(os.path.abspath(tar_file))
    for name, diff_id in zip(names, diff_ids):
        tree.add_layer(plain_layer(archive, name, diff_id, folder))
    with open(tar_file, "wb") as out:
        tree.write(out)
    with open(env_file, "w", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in lines)


def main(arguments):
    if len(arguments) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 64
    reference, tar_file, env_file = arguments
    try:
        path, name, hex_digits = parse_reference(reference)
        if path is not None:
            with open(path, "rb") as file:
                merge(file, hex_digits, tar_file, env_file)
        else:
            with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(tar_file))) as file:
                merge(file, save_from_engine(name, hex_digits, file), tar_file, env_file)
    except (Refused, OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        print(f"existing.py: {error}", file=sys.stderr)
        return 1
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        print(f"existing.py: the archive's JSON has not the form of an image: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
