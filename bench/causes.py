# SPDX-License-Identifier: Apache-2.0
"""Why a goal is missed, where that was looked at: figures, and a text. page.py shows it of those figures that a run misses, and says
of the others that nobody looked. So the texts say what costs, and never by how much a goal is missed."""

CAUSES = (
    ("queue_cpu_ratio", """
a job at a time is a round trip a job, and each of them puts the process to sleep: poll, recv and sendmsg, once each, and nothing in
the other threads. With the server on another core the two wake-ups across cores are most of it: 25 us a job, 13 of them in poll and 8
in sendmsg; by the same program with the server on the same core (`queue_cpu_ratio_core`) 9, where poll takes 3.5 and sendmsg 1.4.
Two jobs at a time, which share a round trip, are 14 us a job on two cores. Both sides are measured in the same places. Our code and the
libraries that it calls are 29,000 instructions a job. No call of the three can be left out, and the next job cannot be asked for
before there is a slot for it."""),
    ("scale", """
nothing in it grows with the queue: instructions a job are the same between 10 and 100 queued and between 100 and 1,000, within 2 %, and so
are round trips, half a one a job. Server and worker have a core each; left to the kernel, both may share one, and a job then costs
5.5 us in place of 14, whatever is queued. What is left is the machine: other work on these cores while one of the sizes is
measured."""),
    ("unseal_ratio", """
the reader also takes the SHA-256 of the whole blob (protocol sections 3 and 5), one stream, whose rounds wait for one another. With
the processor's own instructions OpenSSL does 2.0 GB/s of it and 5.6 GB/s of AES-256-GCM where this was looked at: one after the
other 1.48 GB/s, and the reader does 1.46. Hashed beside the cipher without any cost it would still be 2.0, a ratio of 0.36. Beside
both of OpenSSL, one after the other, it is `unseal_ratio_both`; by its tags alone, `unseal_ratio_tags`."""),
    ("open_pipe_ratio", """
tags and SHA-256 of every byte (`unseal_ratio`), and the copy into the pipe on top; the peer does that copy alone. The sum is taken
while the other side reads, so ours is bound by its own processor time, 1.1 to 1.2 GB/s of it where this was looked at."""),
    ("jcs_ratio", """
half of our time is SHA-256 of the text, at the processor's speed; the rest is spread over the walk. The ratio follows how fast Node
is on that day."""),
    ("unpack_ratio", """
`tar xzf` is two processes, gzip and tar, on two cores; ours is one. It inflates a member at a time with libdeflate (220 MB of tar
outside gVisor: 0.41 s in all, 0.70 s with zlib), and makes three calls a file. What is left is gVisor's own price of a call and of a
page."""),
    ("node_cpu_ratio", """
Node itself spends 5 to 10 ms a job and the `docker` client that it starts 17 to 22; ours was 33 while its two processes a job were
executed for it, each linking twenty libraries, and is 11 since they are forked by one that has linked them. That a crash or a
takeover in them is one job's is worth two processes. Nearly all of what is left is the kernel's, in many parts: page faults after a fork
15 %, opens 11 % and reads 9 %, forks 8 %. Most of the opens and reads were the look at every process of the host for those of the container: three
files of each when this was taken apart. Once the container's control groups are gone it is one of each now."""),
    ("node_job_ratio_docker", """
nearly all of the processor time is spent by what both sides use: dockerd, containerd and its shims 160 to 170 ms a job, gVisor 100 to 110,
where this was looked at; our runner 11, Node's 24. Two things that were ours alone are gone: each job asked the engine for its version
and runtimes (15 ms), and a container that had done its work was killed while it ended by itself, for which the engine starts a program of the
runtime more than for its own end; 0.90 became 1.02. What is left is the slot. Ours is held until the container is
removed, 70 to 100 ms behind the end marker, for its memory may be in use until then; the Node runner's is free at the end marker, so it has
up to four containers with two slots. The same Node runner, made to wait for the end of its `docker run` too, does 5.3 to 5.5 jobs a second, as
many as ours in the same minutes."""),
    ("rss_idle_mib pss_job_mib", """
an idle supervisor's own is the smaller part (1.3 MiB written by it); the rest is code of shared libraries: libcrypto 3.4 MiB, libc 1.5,
GLib and GIO 2.4. They are shared with whatever else on the host uses them. libcurl and the two dozen libraries behind it are loaded where
an engine is spoken to, never on runsc. With a job most is its chunks: up to four are under way, in the supervisor or, while the
sandbox starts, in the job process; one that is just arriving is there as read and as a reply. The four processes without them are 7 to
8 MiB, more or less as other programs on the host have the same libraries mapped, since shared pages are divided by those who have them."""),
    ("snapshot_growth_mib", """
the names of all files are held to be sorted, before the first is read."""),
    ("egress_stream_direct egress_stream_direct_64", """
on two cores client, registry and proxy share what a direct connection's two ends have for themselves; other work on them takes from
the proxy's share first: docs/EGRESS.md, "Limits of throughput and memory"."""),
)
