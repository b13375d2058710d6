# SPDX-License-Identifier: Apache-2.0
"""Figures: collected, summed up, written as build/bench.json and as a table with bars. Their names are in names.py."""
import json, statistics, sys

import names

BAR = 24


class Figures:
    def __init__(self, tell=True):
        self.rows, self.skipped, self.tell = {}, {}, tell

    def add(self, name, ours, peer, note=None):
        """OURS and PEER are lists of measurements, pair by pair where the goal is about their difference."""
        figure = names.FIGURES[name]
        row = {"ours": round(statistics.median(ours), 4), "peer": round(statistics.median(peer), 4), "unit": figure.unit,
               "n": len(ours), "spread": spread(ours), "peerSpread": spread(peer)}
        a, b = (row["ours"], row["peer"]) if figure.better == "higher" else (row["peer"], row["ours"])
        row["ratio"] = round(a / b, 3) if b else 0
        if figure.of == "difference" or name == "docker_job_marker_ms":
            differences = [a - b for a, b in zip(ours, peer)]
            row["difference"] = round(statistics.median(differences), 3)
            row["differenceSpread"] = spread(differences)
        if figure.goal is not None:
            row["goal"] = f"{figure.of} {figure.goal}"
            row["met"] = names.met(name, row)
        if note:
            row["note"] = note
        self.rows[name] = row
        if self.tell:
            say(line(name, row))

    def skip(self, why, *which):
        for name in which:
            if name not in self.rows:
                self.skipped[name] = why
                say(f"{name:24} not measured: {why}")

    def write(self, path, about):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"about": dict(about, skipped=self.skipped), **self.rows}, indent=1) + "\n")


def say(text):
    print(text, file=sys.stderr, flush=True)


def spread(values):
    """Lower and upper quartile."""
    if len(values) < 2:
        return [round(values[0], 4)] * 2
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [round(low, 4), round(high, 4)]


def number(value):
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) >= 100 else f"{value:.2f}"


def bars(row):
    """Ours over the peer, on one scale: the longer one is full."""
    top = max(row["ours"], row["peer"]) or 1
    return ["█" * max(1, round(BAR * value / top)) for value in (row["ours"], row["peer"])]


def said(name, row):
    """The value that the goal is about, and the goal."""
    figure = names.FIGURES[name]
    if figure.of == "difference" or (figure.of is None and "difference" in row):
        value = f"{row['difference']:+.1f} {row['unit']}"
    elif figure.of == "ours":
        value = number(row["ours"])
    else:
        value = f"x{row['ratio']:.2f}"
    if figure.goal is None:
        return value, ""
    return value, f"{'met' if row['met'] else 'MISSED'} (goal {figure.goal})"


def line(name, row):
    value, verdict = said(name, row)
    return (f"{name:24} {number(row['ours']):>10} {row['unit']:13} peer {number(row['peer']):>10}  {value:>9}  n={row['n']:<4} {verdict}").rstrip()


def table(document):
    """A document of bench.json for people."""
    about, lines = document["about"], []
    for title, figures in names.GROUPS.items():
        lines += ["", title]
        for name in figures:
            if name not in document:
                if name in about["skipped"]:
                    lines.append(f"  {name:24} not measured: {about['skipped'][name]}")
                continue
            row = document[name]
            ours, peer = bars(row)
            value, verdict = said(name, row)
            lines.append(f"  {name:24} {number(row['ours']):>10} {row['unit']:13} {ours:{BAR}} {value:>9}  {verdict}".rstrip())
            low, high = row["spread"]
            lines.append(f"  {'':14}peer      {number(row['peer']):>10} {'':13} {peer:{BAR}}            n={row['n']}, ours {number(low)} to {number(high)}"
                         + (f", of {row['of']['at']}" if "of" in row else ""))
    versions = "; ".join(f"{name} {text}" for name, text in about["versions"].items())
    lines += ["", f"{about['cores']} cores, load {about['load'][0]} to {about['load'][1]}, {about['seconds']:.0f} s, {about['at']}", versions]
    return "\n".join(lines)
