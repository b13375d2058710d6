# SPDX-License-Identifier: Apache-2.0
"""The egress proxy beside squid and a direct connection: what egress.py measures in a network namespace of its own, as rows."""
import json, shutil

from world import ROOT, Missing, output

SERIES = {"egress_connects": ("connects_per_cpu_second", "squid", 1), "egress_stream_1": ("bytes_per_cpu_second_1", "squid", 1e9),
          "egress_stream_64": ("bytes_per_cpu_second_64", "squid", 1e9), "egress_stream_direct": ("bytes_per_second_1", "direct", 1e9),
          "egress_idle_kib": ("kib_per_idle_tunnel", "squid", 1)}


def egress(world, add):
    for name in ("squid", "tinyproxy"):
        if shutil.which(name) is None:
            raise Missing(f"{name} is not installed")
    output(ROOT / "bench/egress.py", world.rounds(2, 7), world.rounds(1, 2))
    values = json.loads((ROOT / "build/bench-egress.json").read_text())["values"]
    for name, (series, peer, unit) in SERIES.items():
        add(name, *([value / unit for value in values[series][side]] for side in ("ours", peer)))
