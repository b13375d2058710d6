#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py FILE: assembler text with the bytes of FILE as qv_probes_program, on stdout. A C file of the same would be
five times as long and slow to compile."""

import hashlib
import os
import sys

path = os.path.abspath(sys.argv[1])
with open(path, "rb") as file:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
# The digest makes this text another one when the program is another one: else nothing would be assembled anew.
print(f"""/* Made from {os.path.basename(path)}, {digest}. */
  .section .rodata
  .balign 16
  .globl qv_probes_program
  .type qv_probes_program, %object
qv_probes_program:
  .incbin "{path}"
0:
  .size qv_probes_program, 0b - qv_probes_program
  .balign 8
  .globl qv_probes_program_n
  .type qv_probes_program_n, %object
  .size qv_probes_program_n, 8
qv_probes_program_n:
  .quad 0b - qv_probes_program
  .section .note.GNU-stack,"",%progbits""")
