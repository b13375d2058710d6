#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/page.py [BENCH.JSON [ROOT]]: writes the figures of a run between the markers of docs/PERFORMANCE.md, and the charts of
docs/bench, one a group; what is missed gets its cause from causes.py. Nothing but this file draws them; the same bench.json gives the same bytes."""
import json, pathlib, sys
from xml.sax.saxutils import escape

import names
from causes import CAUSES
from table import number, said

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: written by bench/page.py -->", "<!-- end of figures -->"
WIDTH, LABEL, BAR_LEFT, BAR_WIDTH, ROW = 860, 190, 200, 420, 40
STYLE = ("text{font:13px sans-serif;fill:#24292f}.t{font-weight:bold;font-size:15px}.s{font-size:11px;fill:#57606a}.o{fill:#2f6f9f}"
         ".p{fill:#b8c4ce}.y{fill:#1a7f37}.n{fill:#b3261e}"
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9aa4ae}.y{fill:#4ac26b}.n{fill:#ff7b72}}")


def slug(title):
    return title.lower().replace("'", "").replace(" ", "-")


def bar(row, which, top, y):
    width = max(1.0, BAR_WIDTH * row[which] / (top or 1))
    style = {"ours": "o", "peer": "p"}[which]
    return [f'<rect class="{style}" x="{BAR_LEFT}" y="{y}" width="{width:.1f}" height="12"/>',
            f'<text class="s" x="{BAR_LEFT + width + 5:.1f}" y="{y + 10}">{number(row[which])} {escape(row["unit"]) if which == "ours" else ""}</text>']


def whisker(row, top, y):
    """The quartiles of ours."""
    low, high = (BAR_LEFT + min(BAR_WIDTH * value / (top or 1), BAR_WIDTH * 1.05) for value in row["spread"])
    return f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 6}" y2="{y + 6}" stroke="#e0a030" stroke-width="2"/>'


def chart(title, rows):
    height = 50 + ROW * len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
             f"<style>{STYLE}</style>", f'<text class="t" x="10" y="22">{escape(title)}</text>',
             f'<text class="s" x="{BAR_LEFT}" y="22">blue: ours, grey: its peer, line: the quartiles of ours; a scale a pair</text>']
    for i, (name, row) in enumerate(rows):
        y, top = 40 + ROW * i, max(row["ours"], row["peer"])
        value, verdict = said(name, row)
        parts += [f'<text x="{LABEL}" y="{y + 16}" text-anchor="end">{escape(name)}</text>', *bar(row, "ours", top, y), *bar(row, "peer", top, y + 14),
                  whisker(row, top, y), f'<text class="{"n" if row.get("met") is False else "y" if row.get("met") else "s"}" '
                  f'x="{WIDTH - 10}" y="{y + 16}" text-anchor="end">{escape(value)} {escape(verdict.split(" (")[0])}</text>']
    return "\n".join([*parts, "</svg>", ""])


ROUNDS = {"one": "one round of each, a trial that is not to be quoted", "usual": "`make bench`", "many": "`make bench-full`"}


def earlier_runs(document):
    """Marks of the runs that rows were kept from, and what they were."""
    runs = sorted({json.dumps(row["of"]) for name, row in document.items() if "of" in row})
    marks = {text: "†" * (i + 1) for i, text in enumerate(runs)}
    return marks, [f"{mark}: of a run of {run['at']}, {ROUNDS[run['rounds']]}, load {run['load'][0]} before, {run['load'][1]} after."
                   for run, mark in ((json.loads(text), mark) for text, mark in marks.items())]


def missed(document):
    """The figures that miss their goal: each with its cause, as far as that was looked at."""
    left = [name for name in names.FIGURES if name in document and document[name].get("met") is False]
    lines = []
    for which, text in CAUSES:
        here = [name for name in which.split() if name in left]
        left = [name for name in left if name not in here]
        if here:
            first, *rest = text.strip().split("\n")
            lines += [f"- {listed(here)}: {first}", *(f"  {line}" for line in rest)]
    if left:
        lines.append(f"- No cause is written down of {listed(left)}. Times grow with the load: a run on an idle machine is what judges them.")
    return ["", "### What is missed, and why", "", *(lines or ["Nothing."])]


def listed(which):
    return ", ".join(f"`{name}`" for name in which)


def figures(document):
    about, lines = document["about"], []
    marks, earlier = earlier_runs(document)
    for title, group in names.GROUPS.items():
        rows = [name for name in group if name in document]
        lines += ["", f"### {title}", ""]
        if rows:
            lines += [f"![{title}](bench/{slug(title)}.svg)", "", "| figure | ours (quartiles) | peer | result | goal | n |", "| --- | --- | --- | --- | --- | --- |"]
        for name in rows:
            row, figure = document[name], group[name]
            value, _ = said(name, row)
            goal = "" if figure.goal is None else f"{figure.goal}: {'met' if row['met'] else '**missed**'}"
            low, high = map(number, row["spread"])
            lines.append(f"| `{name}` | {number(row['ours'])} {row['unit']} ({low} to {high}) | {number(row['peer'])} | {value} | {goal} | {row['n']} "
                         f"{marks[json.dumps(row['of'])] if 'of' in row else ''}|")
        lines += [f"- `{name}` was not measured: {about['skipped'][name]}" for name in group if name in about["skipped"]]
    lines += missed(document)
    load = f"load {about['load'][0]} before, {about['load'][1]} after"
    facts = [f"Measured {about['at']}, {ROUNDS[about['rounds']]}, {about['seconds']:.0f} s: {about['cores']} cores, {load}.", *earlier,
             "", "| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in about["versions"].items())]
    return "\n".join([*facts, *lines])


def write_page(path, document):
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"{path}: the markers of the figures are not there")
    path.write_text(text[:text.index(BEGIN)] + f"{BEGIN}\n{figures(document)}\n\n" + text[text.index(END):])


def main(source=ROOT / "build/bench.json", root=ROOT):
    document, root = json.loads(pathlib.Path(source).read_text()), pathlib.Path(root)
    faults = names.check(document, partial=True)
    if faults:
        raise SystemExit("\n".join(faults))
    write_page(root / "docs/PERFORMANCE.md", document)
    (root / "docs/bench").mkdir(exist_ok=True)
    for title, group in names.GROUPS.items():
        rows = [(name, document[name]) for name in group if name in document]
        if rows:
            (root / "docs/bench" / f"{slug(title)}.svg").write_text(chart(title, rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
