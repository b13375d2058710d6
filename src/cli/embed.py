#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py SYMBOL FILE: a C file with the bytes of FILE as SYMBOL and SYMBOL_n, on stdout."""

import pathlib
import sys

symbol, source = sys.argv[1], pathlib.Path(sys.argv[2])
data = source.read_bytes()
print(f"/* Made from {source.name}. */")
print(f'#include "cli/{symbol[3:]}.h"\n')
print(f"const char {symbol}[] = {{")
for start in range(0, len(data), 24):
    print("  " + " ".join(f"{byte}," for byte in data[start:start + 24]))
print("  0,\n};")
print(f"const gsize {symbol}_n = {len(data)};")
