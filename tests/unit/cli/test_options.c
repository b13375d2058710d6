/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `quavon run`, and the forms of their values. */
#include <glib.h>

#include "cli/run_options.h"
#include "cli/verb.h"

/* The verb and its words. */
static gboolean parse(QvRunOptions *options, int *status, const char *const *words)
{
  g_auto(GStrv) argv = g_strdupv((char **)words);
  /* GOption moves words about: a list of its own for what is freed. */
  g_autofree char **moved = g_memdup2(argv, (g_strv_length(argv) + 1) * sizeof *argv);
  *status = -1;
  return qv_run_options_parse((int)g_strv_length(argv), moved, options, status);
}

#define WORDS(...) ((const char *const[]){ "run", __VA_ARGS__, NULL })

static void test_all(void)
{
  g_auto(QvRunOptions) o = { 0 };
  int status;
  g_assert_true(parse(&o, &status,
                      WORDS("--repo", "/r", "--rev=v1", "--image", "node", "--setup", "npm ci", "--egress", "Registry.example",
                            "--egress=b.example:8443", "--artefact", "a/**",
                            "--artefact=b", "--timeout", "10m", "--env", "A=1", "--env", "B=x=y", "--memory", "2G",
                            "--cpus", "1.5", "--tenant", "t", "--output", "out", "--force", "--json", "--raw", "-q",
                            "--", "make", "--jobs", "-q")));
  g_assert_cmpstr(o.repo, ==, "/r");
  g_assert_cmpstr(o.rev, ==, "v1");
  g_assert_cmpstr(o.image, ==, "node");
  g_assert_cmpstr(o.setup, ==, "npm ci");
  g_assert_cmpstrv(o.egress, ((const char *const[]){ "registry.example:443", "b.example:8443", NULL }));
  g_assert_cmpstr(o.artefacts[0], ==, "a/**");
  g_assert_cmpstr(o.artefacts[1], ==, "b");
  g_assert_null(o.artefacts[2]);
  g_assert_cmpstr(o.env[1], ==, "B=x=y");
  g_assert_cmpint(o.timeout_ms, ==, 600000);
  g_assert_cmpint(o.memory_mib, ==, 2048);
  g_assert_cmpint(o.milli_cpus, ==, 1500);
  g_assert_cmpstr(o.tenant, ==, "t");
  g_assert_cmpstr(o.output, ==, "out");
  g_assert_true(o.force && o.json && o.raw && o.quiet && !o.detach && !o.all);
  g_assert_cmpstrv(o.command, ((const char *const[]){ "make", "--jobs", "-q", NULL }));
}

/* The command's own options are not ours, with "--" or without. */
static void test_command(void)
{
  const char *const *const lines[] = {
    (const char *const[]){ "run", "make", "--json", "-h", NULL },
    (const char *const[]){ "run", "--", "make", "--json", "-h", NULL },
    (const char *const[]){ "run", "--all", "make", "--json", "-h", NULL },
  };
  for (guint i = 0; i < G_N_ELEMENTS(lines); i++) {
    g_auto(QvRunOptions) o = { 0 };
    int status;
    g_assert_true(parse(&o, &status, lines[i]));
    g_assert_cmpstrv(o.command, ((const char *const[]){ "make", "--json", "-h", NULL }));
    g_assert_false(o.json);
  }
  /* Only the first "--" is ours. */
  g_auto(QvRunOptions) o = { 0 };
  int status;
  g_assert_true(parse(&o, &status, WORDS("--", "--", "x")));
  g_assert_cmpstrv(o.command, ((const char *const[]){ "--", "x", NULL }));
}

static void test_refused(void)
{
  const char *const *const lines[] = {
    (const char *const[]){ "run", NULL },
    (const char *const[]){ "run", "--", NULL },
    (const char *const[]){ "run", "--no-such-option", "true", NULL },
    (const char *const[]){ "run", "--repo", NULL },
    (const char *const[]){ "run", "--all", "--rev", "x", "true", NULL },
    (const char *const[]){ "run", "--detach", "--output", "x", "true", NULL },
    (const char *const[]){ "run", "--env", "A", "true", NULL },
    (const char *const[]){ "run", "--env", "=x", "true", NULL },
    (const char *const[]){ "run", "--egress", "a.example", "true", NULL },
    (const char *const[]){ "run", "--setup", "x", "--egress", "192.0.2.1:443", "true", NULL },
    (const char *const[]){ "run", "--setup", "x", "--egress", "a.example:0", "true", NULL },
    (const char *const[]){ "run", "--setup", "x", "--egress", "https://a.example", "true", NULL },
    (const char *const[]){ "run", "--timeout", "soon", "true", NULL },
    (const char *const[]){ "run", "--memory", "0", "true", NULL },
    (const char *const[]){ "run", "--cpus", "-1", "true", NULL },
  };
  for (guint i = 0; i < G_N_ELEMENTS(lines); i++) {
    g_auto(QvRunOptions) o = { 0 };
    int status;
    g_assert_false(parse(&o, &status, lines[i]));
    g_assert_cmpint(status, ==, QV_CLI_USAGE);
  }
}

static void test_values(void)
{
  static const struct {
    gint64 (*parse)(const char *);
    const char *text;
    gint64 value;
  } cases[] = {
    { qv_parse_duration_ms, "90", 90000 },     { qv_parse_duration_ms, "90s", 90000 },
    { qv_parse_duration_ms, "10m", 600000 },   { qv_parse_duration_ms, "1h", 3600000 },
    { qv_parse_duration_ms, "500ms", 500 },    { qv_parse_duration_ms, "24h", 86400000 },
    { qv_parse_duration_ms, "25h", -1 },       { qv_parse_duration_ms, "0", -1 },
    { qv_parse_duration_ms, "", -1 },          { qv_parse_duration_ms, "1d", -1 },
    { qv_parse_duration_ms, "-1", -1 },        { qv_parse_duration_ms, "1.5h", -1 },
    { qv_parse_duration_ms, "99999999999", -1 }, { qv_parse_duration_ms, " 1", -1 },
    { qv_parse_mib, "512", 512 },              { qv_parse_mib, "512M", 512 },
    { qv_parse_mib, "2G", 2048 },              { qv_parse_mib, "1024G", 1048576 },
    { qv_parse_mib, "1025G", -1 },             { qv_parse_mib, "0G", -1 },
    { qv_parse_mib, "2GB", -1 },               { qv_parse_mib, "M", -1 },
    { qv_parse_milli_cpus, "2", 2000 },        { qv_parse_milli_cpus, "1.5", 1500 },
    { qv_parse_milli_cpus, "0.25", 250 },      { qv_parse_milli_cpus, "0.001", 1 },
    { qv_parse_milli_cpus, "0", -1 },          { qv_parse_milli_cpus, "0.0001", -1 },
    { qv_parse_milli_cpus, "1.", -1 },         { qv_parse_milli_cpus, ".5", -1 },
    { qv_parse_milli_cpus, "1,5", -1 },        { qv_parse_milli_cpus, "1024.001", -1 },
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    if (cases[i].parse(cases[i].text) != cases[i].value)
      g_error("\"%s\" is %" G_GINT64_FORMAT ", not %" G_GINT64_FORMAT, cases[i].text, cases[i].parse(cases[i].text),
              cases[i].value);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/options/all", test_all);
  g_test_add_func("/options/command", test_command);
  g_test_add_func("/options/refused", test_refused);
  g_test_add_func("/options/values", test_values);
  return g_test_run();
}
