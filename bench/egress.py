#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""egress.py [ROUNDS [SECONDS]]: the egress proxy beside tinyproxy and squid, in turn, in one run. Writes
build/bench-egress.json.

What is measured: CONNECTs a second of the proxy's CPU time (all its processes; ours looks every token up in Valkey, reads the
ClientHello and checks addresses; the others check a list of names), throughput of one and of 64 tunnels as a part of a
direct connection's, bytes a second of the proxy's CPU time (which other work on the machine disturbs less), resident
memory of 1,000 idle tunnels. Everything runs on the loopback of a network namespace that ends with the run. Figures of one machine at one moment: nothing asserts them.
"""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
LOAD = BUILD / "bench/egress_load"
HOST = "bench.example"
CONNECTS, AT_ONCE = 10000, 32
STREAM_SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
IDLE = 1000
TICK = os.sysconf("SC_CLK_TCK")


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running


def bind_file(work, over, content):
    path = work / over.replace("/", "_")
    path.write_text(content)
    subprocess.run(["mount", "--bind", path, over], check=True)


def await_port(port):
    for _ in range(600):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"egress.py: nothing listens at {port}")


def family(pid):
    """A process and its descendants."""
    pids = [pid]
    for one in pids:
        for task in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pids += [int(child) for child in task.read_text().split()]
    return pids


def cpu_seconds(pid):
    """Of the process and its descendants, threads that have ended included: a thread a connection has many of those."""
    total = 0
    for one in family(pid):
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def resident_kib(pid):
    total = 0
    for one in family(pid):
        for line in pathlib.Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total


class Proxy:
    def __init__(self, name, port, command, environment=None, auth="", log=None):
        self.name, self.port, self.auth = name, port, auth
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        await_port(port)
        time.sleep(1)

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def stop(self):
        for pid in reversed(family(self.process.pid)):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_valkey(work):
    path = work / "valkey.sock"
    process = subprocess.Popen(["valkey-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", work],
                               stdout=subprocess.DEVNULL)
    for _ in range(600):
        if path.exists():
            break
        time.sleep(0.05)
    return process, path


def put_token(sock_path):
    token = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
    record = json.dumps({"v": 1, "jobId": "00000000-0000-4000-8000-000000000001", "hosts": [f"{HOST}:443", f"{HOST}:444"],
                         "source": None, "expiresAt": int(time.time() * 1000) + 7200000}, separators=(",", ":"))
    key = f"quavon-sandbox:egress:{hashlib.sha256(token.encode()).hexdigest()}"
    command = b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in
                                  (b"SET", key.encode(), record.encode()))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(sock_path))
        sock.sendall(command)
        assert sock.recv(16) == b"+OK\r\n"
    return base64.b64encode(f"job:{token}".encode()).decode()


def start_ours(work, sock_path, log):
    environment = {"PATH": os.environ["PATH"], "VALKEY_URL": f"unix://{sock_path}", "QUAVON_EGRESS_LISTEN": "127.0.0.1:3128",
                   "QUAVON_SANDBOX_REGISTRIES": f"{HOST}@127.0.0.0/8,{HOST}:444@127.0.0.0/8",
                   "QUAVON_EGRESS_MAX_TUNNELS_PER_TOKEN": "4096", "QUAVON_EGRESS_MAX_BYTES": str(2**50)}
    return Proxy("ours", 3128, [BUILD / "src/egress/quavon-sandbox-egress"], environment, put_token(sock_path), log)


def start_tinyproxy(work, log):
    (work / "names").write_text(f"^{HOST.replace('.', '[.]')}$\n")
    (work / "tiny.conf").write_text(f"Port 3129\nListen 127.0.0.1\nTimeout 600\nMaxClients 5000\nAllow 127.0.0.1\n"
                                    f"ConnectPort 443\nConnectPort 444\nFilter \"{work}/names\"\nFilterDefaultDeny Yes\n"
                                    f"LogLevel Error\nDisableViaHeader Yes\n")
    return Proxy("tinyproxy", 3129, ["tinyproxy", "-d", "-c", work / "tiny.conf"], log=log)


def start_squid(work, log):
    spool = work / "squid"
    spool.mkdir()
    shutil.chown(spool, "proxy", "proxy")
    work.chmod(0o755)
    (work / "squid.conf").write_text(
        f"http_port 127.0.0.1:3130\nacl ours dstdomain {HOST}\nacl ports port 443 444\nacl CONNECT method CONNECT\n"
        "http_access allow CONNECT ours ports\nhttp_access deny all\ncache deny all\naccess_log none\ncache_store_log none\n"
        f"cache_log {spool}/cache.log\npid_filename {spool}/pid\ncoredump_dir {spool}\nworkers 1\nmax_filedescriptors 65536\n"
        "shutdown_lifetime 0 seconds\npinger_enable off\nclient_persistent_connections off\nvisible_hostname bench\n")
    return Proxy("squid", 3130, ["squid", "-N", "-f", work / "squid.conf"], log=log)


def run_load(*words):
    return float(subprocess.run([LOAD, *map(str, words)], check=True, capture_output=True, text=True).stdout)


def run_stream(proxy, tunnels):
    """Bytes a second, and the CPU seconds of the proxy (none: 0) while they moved: not those of opening the tunnels."""
    port, auth = (proxy.port, proxy.auth) if proxy else (0, "")
    load = subprocess.Popen([LOAD, "stream", str(port), HOST, auth, str(tunnels), str(STREAM_SECONDS)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert load.stdout.readline() == "open\n"
    before = proxy.cpu() if proxy else 0
    rate = float(load.communicate("\n")[0])
    return rate, proxy.cpu() - before if proxy else 0


def idle_kib(proxy):
    before = resident_kib(proxy.process.pid)
    load = subprocess.Popen([LOAD, "idle", str(proxy.port), HOST, proxy.auth, str(IDLE)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert load.stdout.readline() == "open\n"
    time.sleep(1)
    after = resident_kib(proxy.process.pid)
    load.communicate()
    time.sleep(1)
    return (after - before) / IDLE


def measure(proxies, rounds):
    figures = {"connects_per_cpu_second": {}, "bytes_per_second_1": {"direct": []}, "bytes_per_second_64": {"direct": []},
               "bytes_per_cpu_second_1": {}, "bytes_per_cpu_second_64": {}, "kib_per_idle_tunnel": {}}
    for proxy in proxies:
        figures["kib_per_idle_tunnel"][proxy.name] = idle_kib(proxy)
        run_load("connects", proxy.port, HOST, proxy.auth, 200, 8)  # warm
    for _ in range(rounds):
        for proxy in proxies:
            before = proxy.cpu()
            run_load("connects", proxy.port, HOST, proxy.auth, CONNECTS, AT_ONCE)
            figures["connects_per_cpu_second"].setdefault(proxy.name, []).append(CONNECTS / (proxy.cpu() - before))
        for tunnels in (1, 64):
            series = figures[f"bytes_per_second_{tunnels}"]
            series["direct"].append(run_stream(None, tunnels)[0])
            for proxy in proxies:
                rate, spent = run_stream(proxy, tunnels)
                series.setdefault(proxy.name, []).append(rate)
                figures[f"bytes_per_cpu_second_{tunnels}"].setdefault(proxy.name, []).append(
                    rate * STREAM_SECONDS / max(spent, 1 / TICK))
    return figures


def report(figures, rounds):
    ratios = {}
    medians = {name: {side: statistics.median(v) if isinstance(v, list) else v for side, v in sides.items()}
               for name, sides in figures.items()}
    for name, sides in medians.items():
        for side, value in sides.items():
            if side != "ours" and value:
                ratios[f"{name}/{side}"] = round(sides["ours"] / value, 2)
    return {"rounds": rounds, "load": os.getloadavg()[0], "cores": os.cpu_count(), "connects": CONNECTS, "at_once": AT_ONCE, "idle_tunnels": IDLE,
            "medians": {name: {side: round(value, 2) for side, value in sides.items()} for name, sides in medians.items()},
            "ours_divided_by": ratios,
            "values": {name: {side: v if isinstance(v, list) else [v] for side, v in sides.items()} for name, sides in figures.items()}}


def write(out):
    (ROOT / "build/bench-egress.json").write_text(json.dumps(out, indent=1) + "\n")


def main():
    if os.environ.get("QUAVON_TEST_NAMESPACES") != "own":
        os.environ["QUAVON_TEST_NAMESPACES"] = "own"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, __file__, *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    work = pathlib.Path(tempfile.mkdtemp(prefix="qv-bench-", dir="/tmp"))
    running = []
    try:
        loopback_up()
        bind_file(work, "/etc/hosts", f"127.0.0.1 localhost {HOST}\n")
        bind_file(work, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
        far = subprocess.Popen([LOAD, "serve", "127.0.0.1"], stdout=subprocess.PIPE, text=True)
        running.append(far)
        far.stdout.readline()
        valkey, sock_path = start_valkey(work)
        running.append(valkey)
        with open(work / "log", "wb") as log:
            proxies = []
            try:
                proxies.append(start_ours(work, sock_path, log))
                proxies.append(start_tinyproxy(work, log))
                proxies.append(start_squid(work, log))
                out = report(measure(proxies, rounds), rounds)
            finally:
                for proxy in proxies:
                    proxy.stop()
        text = json.dumps(out, indent=1)
        write(out)
        print(text)
    finally:
        for process in running:
            process.kill()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
