#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pack.py LAYER COMMAND ARCHIVE: an image of one layer, as `docker load` reads it, with fixed times; prints its id."""

import hashlib
import io
import json
import os
import platform
import sys
import tarfile


def main(layer_file, command, archive):
    digest = hashlib.sha256()
    with open(layer_file, "rb") as layer:
        while piece := layer.read(1 << 20):
            digest.update(piece)
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()], "os": "linux",
        "created": "2025-01-01T00:00:00Z",
        "config": {"Entrypoint": [command], "User": "65532:65532", "WorkingDir": "/",
                   "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest.hexdigest()]},
    }, separators=(",", ":"), sort_keys=True).encode()
    name = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": name + ".json", "RepoTags": None, "Layers": [name + "/layer.tar"]}]).encode()
    with tarfile.open(archive + ".partial", mode="w", format=tarfile.USTAR_FORMAT) as out:
        for member, text in ((name + ".json", config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(text)
            out.addfile(info, io.BytesIO(text))
        with open(layer_file, "rb") as layer:
            info = tarfile.TarInfo(name + "/layer.tar")
            info.size = os.fstat(layer.fileno()).st_size
            out.addfile(info, layer)
    os.rename(archive + ".partial", archive)
    print("sha256:" + name)


if __name__ == "__main__":
    main(*sys.argv[1:])
