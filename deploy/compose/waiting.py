#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""waiting.py DIR: which jobs of the stack in DIR wait for an image that is no longer the current one of its name.

They run all the same: the lock keeps the previous image. Reads the queue as the user worker."""

import json
import pathlib
import socket
import sys

PREFIX = "quavon-sandbox:sandbox:"
SHOWN_MAX = 20


class Valkey:
    """The few replies that are needed here: texts, numbers, lists."""

    def __init__(self, path, user, password):
        self.peer = socket.socket(socket.AF_UNIX)
        self.peer.settimeout(30)
        self.peer.connect(path)
        self.file = self.peer.makefile("rb")
        self.call("AUTH", user, password)

    def call(self, *words):
        parts = [word.encode() for word in words]
        self.peer.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self.reply()

    def reply(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise OSError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest


def waiting(valkey):
    for key in ("wait", "paused"):
        for i in range(valkey.call("LLEN", PREFIX + key)):
            job = valkey.call("LINDEX", PREFIX + key, str(i))
            if job is not None:
                yield job.decode(errors="replace")
    for key in ("prioritized", "delayed"):
        for job in valkey.call("ZRANGE", PREFIX + key, "0", "-1"):
            yield job.decode(errors="replace")


def main(folder):
    folder = pathlib.Path(folder)
    lock = json.loads((folder / "images" / "images.lock.json").read_text(encoding="utf-8"))
    seen, previous = set(), {}
    for image in lock["images"]:
        place = (image["name"], image["platform"])
        if place in seen:
            previous[image["digest"]] = image["name"]
        seen.add(place)
    password = (folder / "secrets" / "valkey_worker_password").read_text(encoding="utf-8").strip()
    try:
        valkey = Valkey(str(folder / "run" / "valkey.sock"), "worker", password)
    except OSError:
        # Nothing runs yet: nothing waits.
        return 0
    found = {}
    for job in waiting(valkey):
        data = valkey.call("HGET", PREFIX + job, "data")
        try:
            digest = json.loads(data)["job"]["image"]["digest"]
        except (TypeError, ValueError, KeyError):
            continue
        if digest in previous:
            found.setdefault(digest, []).append(job)
    for digest, jobs in found.items():
        more = f" and {len(jobs) - SHOWN_MAX} more" if len(jobs) > SHOWN_MAX else ""
        print(f"{len(jobs)} jobs wait for the previous image {previous[digest]} ({digest}), which the runner keeps: "
              + ", ".join(jobs[:SHOWN_MAX]) + more)
    if previous and not found:
        print("no job waits for a previous image")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
