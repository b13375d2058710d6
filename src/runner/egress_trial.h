/* SPDX-License-Identifier: Apache-2.0 */
/* Does a network for jobs with egress let a sandbox reach the proxy and nothing else? It is tried with two real ones: the
 * first only waits, the second asks for the proxy, for the host and for the first. */
#pragma once

#include "runner/setup.h"

/* Blocks; runs the default main context. PROXY: "IPv4:port". A backend whose sandboxes have no network: nothing to do.
 * QV_ERROR_POLICY: what can be reached and must not, or there is no PROXY; with what mends it. *AWAY (may be NULL) is TRUE where the
 * trial was held to its end, and the proxy alone was missing; an engine that is lost is not that. */
gboolean qv_egress_trial(QvBackend *backend, const QvTrialImages *image, const char *proxy, gboolean *away, GError **error);

/* The judge of it, pure. REPORT: "reach TARGET ANSWER", a line for each of TARGETS, in order; the first is the proxy,
 * the second the canary. */
gboolean qv_egress_trial_judge(const char *network, char *const *targets, const char *report, gboolean *away, GError **error);
