/* SPDX-License-Identifier: Apache-2.0 */
/* The image node: `npm ci` and its scripts as the sandbox's user, under a read-only root, without network. */
#include <string.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"

/* A package with a program and an install script, packed into the repository, its digest in the lock file. */
static const char make_repository[] =
  "mkdir -p vendor pkg/package\n"
  "cd pkg/package\n"
  "cat >package.json <<'END'\n"
  "{\"name\":\"greet\",\"version\":\"1.0.0\",\"bin\":{\"greet\":\"cli.js\"},\"scripts\":{\"install\":\"echo yes >built\"}}\n"
  "END\n"
  "printf '#!/usr/bin/env node\\nconsole.log(\"hello \" + process.argv[2]);\\n' >cli.js\n"
  "chmod 755 cli.js\n"
  "cd ../..\n"
  "tar -C pkg -czf vendor/greet.tgz package\n"
  "rm -r pkg\n"
  "digest=$(openssl dgst -sha512 -binary vendor/greet.tgz | base64 -w0)\n"
  "greet='\"dependencies\":{\"greet\":\"file:vendor/greet.tgz\"}'\n"
  "cat >package.json <<END\n"
  "{\"name\":\"app\",\"version\":\"1.0.0\",$greet,\"scripts\":{\"test\":\"greet world\"}}\n"
  "END\n"
  "cat >package-lock.json <<END\n"
  "{\"name\":\"app\",\"version\":\"1.0.0\",\"lockfileVersion\":3,\"requires\":true,\"packages\":{"
  "\"\":{\"name\":\"app\",\"version\":\"1.0.0\",$greet},"
  "\"node_modules/greet\":{\"version\":\"1.0.0\",\"resolved\":\"file:vendor/greet.tgz\",\"integrity\":\"sha512-$digest\","
  "\"hasInstallScript\":true,\"bin\":{\"greet\":\"cli.js\"}}}}\n"
  "END\n";

static void test_ci(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  tree_run(run->repo, "sh", "-euc", make_repository, NULL);
  int status = run_all(run, WORDS("--image", "node", "--env", "npm_config_update_notifier=false", "--", "sh", "-euc",
                                  "echo \"$(id -u) $HOME\"\n"
                                  "if touch /usr/written 2>/dev/null; then exit 9; fi\n"
                                  "npm ci --no-audit --no-fund\n"
                                  "cat node_modules/greet/built\n"
                                  "npm test\n"
                                  "for tool in node npm npx git make gcc g++ python3; do command -v $tool; done\n"));
  g_autofree char *out = run_stdout(run);
  g_autofree char *err = run_stderr(run);
  if (status != 0)
    g_error("npm ci ended with %d:\n%s\n%s", status, out, err);
  g_assert_true(g_str_has_prefix(out, "65532 /workspace/home\n"));
  static const char *const said[] = { "added 1 package", "\nyes\n", "\nhello world\n", "/usr/bin/python3\n" };
  for (guint i = 0; i < G_N_ELEMENTS(said); i++)
    if (strstr(out, said[i]) == NULL)
      g_error("no \"%s\" in:\n%s", said[i], out);
  run_free(run);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/node/ci", test_ci);
  return g_test_run();
}
