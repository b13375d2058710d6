# SPDX-License-Identifier: Apache-2.0
"""Figures: collected, summed up, written as build/bench.json and as a table with bars."""
import json, statistics, sys


class Figures:
    def __init__(self):
        self.rows, self.skipped = {}, {}

    def add(self, name, ours, peer=None, unit="", goal=None, note=None, higher=True, minus=False):
        """OURS and PEER are lists of measurements. The ratio says how many times better ours is; with MINUS, ours less
        peer, pair by pair, is what counts, and the ratio is that of the medians."""
        row = {"ours": round(statistics.median(ours), 4), "unit": unit, "n": len(ours), "spread": spread(ours)}
        if peer:
            row["peer"] = round(statistics.median(peer), 4)
            row["peerSpread"] = spread(peer)
            a, b = (row["ours"], row["peer"]) if higher else (row["peer"], row["ours"])
            row["ratio"] = round(a / b, 3) if b else None
        if minus:
            differences = [a - b for a, b in zip(ours, peer)]
            row["difference"] = round(statistics.median(differences), 3)
            row["differenceSpread"] = spread(differences)
        if goal is not None:
            row["goal"] = goal
        if note:
            row["note"] = note
        self.rows[name] = row
        print(line(name, row), file=sys.stderr, flush=True)

    def skip(self, name, why):
        self.skipped[name] = why
        print(f"{name:26} not measured: {why}", file=sys.stderr, flush=True)

    def write(self, path, versions):
        path.write_text(json.dumps({"versions": versions, "skipped": self.skipped, **self.rows}, indent=1) + "\n")

    def table(self):
        lines = [line(name, row) for name, row in self.rows.items()]
        return "\n".join(lines + [f"{name:26} not measured: {why}" for name, why in self.skipped.items()])


def spread(values):
    """Lower and upper quartile."""
    if len(values) < 2:
        return [round(values[0], 4)] * 2
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [round(low, 4), round(high, 4)]


def line(name, row):
    text = f"{name:26} {row['ours']:>12,.2f} {row['unit']:12}"
    if "difference" in row:
        return text + f" peer {row['peer']:>12,.2f}  difference {row['difference']:.2f} ({row.get('goal', '')})"
    if "ratio" in row:
        bar = "#" * max(1, min(40, round(row["ratio"] * 2)))
        return text + f" peer {row['peer']:>12,.2f}  x{row['ratio']:<7.2f} {('goal ' + row['goal']) if 'goal' in row else '':12} {bar}"
    return text + (f" goal {row['goal']}" if "goal" in row else "")
