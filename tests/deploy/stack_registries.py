# SPDX-License-Identifier: Apache-2.0
"""The Compose stack with a registry: a TLS server on the engine's host that only the proxy sees. Part of test_compose.py."""

import contextlib
import os
import pty
import re
import shutil
import socket
import subprocess
import time

# With what the image tiny has (make_tiny): is something there?
OUT = 'out() { case "$(timeout 5 openssl s_client "$@" </dev/null 2>&1)" in *CONNECTED*) return 0;; esac; return 1; }; '
# Through the forwarder; beside it there is the proxy alone, although the registry listens at the gateway as well.
FETCH = OUT + ('echo "${HTTPS_PROXY##*/}" >way; printf "GET /hello.txt HTTP/1.0\\r\\n\\r\\n" | '
               'openssl s_client -quiet -proxy "$(cat way)" -connect REGISTRY -servername localhost -CAfile ca.pem -verify_return_error '
               '>fetched 2>said || { cat said; exit 4; }; '
               'out -connect 10.89.213.1:3128 && echo "proxy seen" >>fetched; out -connect 10.89.213.1:PORT && echo "gateway OPEN" >>fetched; :')
# A run step may begin a moment before its container is off the network.
USE = OUT + ('cat fetched; i=0; while out -connect 10.89.213.1:3128 && [ $i -lt 600 ]; do i=$((i + 1)); sleep 0.1; done; '
             '[ $i -lt 600 ] || echo "proxy OPEN"; out -connect 10.89.213.1:PORT && echo "gateway OPEN"; '
             'out -proxy "$(cat way)" -connect REGISTRY && echo "registry OPEN"; echo end')
CERTIFICATES = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj '/CN=test CA'
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost\\n' >ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out server.crt
"""
NAMES = ("QUAVON_EGRESS_NETWORK_MODE", "QUAVON_EGRESS_LISTEN", "QUAVON_SANDBOX_EGRESS_NETWORK", "QUAVON_SANDBOX_EGRESS_PROXY")


def inside(engine, *words):
    """On the engine's host, where no systemd runs, whatever does on this one."""
    script = 'if [ -d /run/systemd/system ]; then mount -t tmpfs tmpfs /run/systemd; fi; exec "$@"'
    return ("nsenter", "--target=" + engine.ask("pid"), "--net", "--", "unshare", "--mount", "sh", "-euc", script, "sh", *map(str, words))


def with_yes(engine, *words):
    """Somebody answers at a terminal: nothing is upgraded."""
    mine, theirs = pty.openpty()
    os.write(mine, b"y\n")
    try:
        done = subprocess.run(inside(engine, *words), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, env=engine.environment)
    finally:
        os.close(mine)
        os.close(theirs)
    assert done.returncode == 0, (words, done.stdout[-6000:])
    return done.stdout


@contextlib.contextmanager
def registry(engine):
    folder = engine.folder / "registry"
    folder.mkdir()
    engine.run("sh", "-euc", CERTIFICATES, cwd=folder)
    (folder / "hello.txt").write_text("from the registry\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(inside(engine, "openssl", "s_server", "-accept", str(port), "-cert", "server.crt", "-key",
                                     "server.key", "-WWW", "-quiet"),
                              cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"localhost:{port}"
    finally:
        server.kill()
        server.wait()


def add(folder, lines):
    (folder / ".env").write_text((folder / ".env").read_text() + lines)


def unlist(folder):
    kept = [line for line in (folder / ".env").read_text().splitlines(True) if not line.startswith("QUAVON_SANDBOX_REGISTRIES=")]
    (folder / ".env").write_text("".join(kept))


def settings_of(folder):
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def what_is_there(engine, folder):
    """Network, firewall, settings."""
    return ("quavon-egress" in engine.docker("network", "ls", "--format", "{{.Name}}").split(),
            "quavon_egress" in engine.run(*inside(engine, "nft", "list", "tables")),
            [name for name in NAMES if name in settings_of(folder)])


def check(engine, folder, installer):
    with registry(engine) as host_port:
        port = host_port.rpartition(":")[2]
        fetching = engine.folder / "fetching"
        fetching.mkdir()
        shutil.copy(engine.folder / "registry" / "ca.pem", fetching)
        job = (installer, "run", "--quiet", "--repo", fetching, "--memory", "256M", "--egress", host_port,
               "--setup", FETCH.replace("REGISTRY", host_port).replace("PORT", port), "--",
               "sh", "-c", USE.replace("REGISTRY", host_port).replace("PORT", port))
        add(folder, f"QUAVON_SANDBOX_REGISTRIES={host_port}@127.0.0.0/8,{host_port}@::1\n")
        said = with_yes(engine, installer, "install", "--dir", folder)
        assert said.rstrip().endswith(" 0 failures") and "what keeps the rules is yours" in said, said
        assert what_is_there(engine, folder) == (True, True, list(NAMES))
        said = engine.run(*job)
        assert re.fullmatch(r"(?s).*from the registry\s+proxy seen\nend\n", said) and "OPEN" not in said, said
        # Nothing is listed any more: the stack goes on without, and such a job is refused.
        unlist(folder)
        said = with_yes(engine, installer, "install", "--dir", folder)
        assert said.rstrip().endswith(" 0 failures"), said
        assert what_is_there(engine, folder) == (False, False, [])
        assert "egress_not_allowed" in engine.run(*job, status=None)


def list_again(engine, folder, tool):
    """As an install leaves it behind."""
    add(folder, "QUAVON_SANDBOX_REGISTRIES=registry.example\n" + engine.run(*inside(engine, tool, "up")) +
        "QUAVON_EGRESS_NETWORK_MODE=host\n")
    assert what_is_there(engine, folder) == (True, True, list(NAMES))
