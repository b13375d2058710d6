# SPDX-License-Identifier: Apache-2.0
"""The egress proxy beside tinyproxy, squid and a direct connection: what egress.py measures in a network namespace of its own, as
rows. The peer is the better one of the two proxies, and the note has both."""
import json, shutil, statistics

import names
from world import ROOT, Missing, output

PROXIES, DIRECT = ("tinyproxy", "squid"), ("direct",)
SERIES = {"egress_connects": ("connects_per_cpu_second", PROXIES, 1), "egress_stream_1": ("bytes_per_cpu_second_1", PROXIES, 1e9),
          "egress_stream_64": ("bytes_per_cpu_second_64", PROXIES, 1e9), "egress_stream_direct": ("bytes_per_second_1", DIRECT, 1e9),
          "egress_stream_direct_64": ("bytes_per_second_64", DIRECT, 1e9), "egress_idle_kib": ("kib_per_idle_tunnel", PROXIES, 1)}


def egress(world, add):
    for name in ("squid", "tinyproxy"):
        if shutil.which(name) is None:
            raise Missing(f"{name} is not installed")
    output(ROOT / "bench/egress.py", world.rounds(5, 9), 1)
    values = json.loads((ROOT / "build/bench-egress.json").read_text())["values"]
    for name, (series, peers, unit) in SERIES.items():
        medians = {peer: statistics.median(values[series][peer]) / unit for peer in peers}
        peer = (max if names.FIGURES[name].better == "higher" else min)(medians, key=medians.get)
        note = ", ".join(f"{one} {value:.4g}" for one, value in medians.items())
        add(name, *([value / unit for value in values[series][side]] for side in ("ours", peer)), note=note)
