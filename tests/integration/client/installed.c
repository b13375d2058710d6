/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody who has nothing but the installed header and library: strict C99, no GLib. Submits a job for the
 * folder that is its argument, sees that it waits, and takes it back. Settings come from the environment. */
#include <quavon/quavon.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what, QuavonError *error)
{
  fprintf(stderr, "%s: %s\n", what, error != NULL ? quavon_error_message(error) : "no error?");
  quavon_error_free(error);
  return 1;
}

static int give_up(const QuavonProgress *progress, void *data)
{
  ++*(int *)data;
  return progress->stage == QUAVON_STAGE_WAITING ? QUAVON_CANCEL : QUAVON_GO_ON;
}

int main(int argc, char **argv)
{
  static const char digest[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
  const char *const command[] = { "make", "test", NULL };
  char id[QUAVON_JOB_ID_SIZE];
  int calls = 0;
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  QuavonJob *job = quavon_job_new();
  QuavonStep *step = quavon_job_add_step(job, "test", command);
  QuavonResult *result;
  if (argc != 2 || client == NULL)
    return fail("open", error);
  quavon_step_add_env(step, "LEVEL", "1");
  quavon_job_set_folder(job, argv[1]);
  quavon_job_set_image(job, "base", digest);
  if (quavon_submit(client, job, give_up, &calls, id, &error) != 0)
    return fail("submit", error);
  quavon_job_free(job);
  result = quavon_result_get(client, id, &error);
  if (result != NULL || error != NULL)
    return fail("result", error);
  result = quavon_wait(client, id, give_up, &calls, &error);
  if (result != NULL || error == NULL || quavon_error_code(error) != QUAVON_ERROR_CANCELLED)
    return fail("wait", error);
  quavon_error_free(error);
  quavon_client_close(client);
  printf("%s %s %s\n", quavon_version(), strlen(id) == 36 ? "id" : id, calls > 2 ? "progress" : "silence");
  return 0;
}
