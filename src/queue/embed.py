# SPDX-License-Identifier: Apache-2.0
"""Joins the Lua parts of one script into one C table entry: comments and indentation go, so that what is sent is short.

embed.py OUTPUT SCRIPTS_DIR NAME[+part]...
"""
import os
import sys

HEADS = ["common"]


def read(folder, name):
    with open(os.path.join(folder, name + ".lua"), encoding="ascii") as f:
        return f.read().splitlines()


def strip(lines):
    for line in lines:
        text = line.strip()
        cut = text.find(" -- ")
        if cut >= 0:
            text = text[:cut].rstrip()
        if text and not text.startswith("--"):
            yield text


def main(out, folder, specs):
    with open(out, "w", encoding="ascii") as f:
        f.write('/* Made by embed.py. */\n#include "queue/script.h"\n\n')
        for spec in specs:
            name, *parts = spec.split("+")
            own = read(folder, name)
            lines = []
            if own[0].startswith("#!"):
                lines.append(own.pop(0))
            for part in HEADS + parts:
                lines += strip(read(folder, part))
            lines += strip(own)
            f.write(f"QvScript qv_script_{name} = {{ .name = \"{name}\", .text =\n")
            for line in lines:
                escaped = line.replace("\\", "\\\\").replace('"', '\\"')
                f.write(f'  "{escaped}\\n"\n')
            f.write("};\n\n")


main(sys.argv[1], sys.argv[2], sys.argv[3:])
