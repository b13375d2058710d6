/* SPDX-License-Identifier: Apache-2.0 */
/* submit FOLDER JOBS [NAME=VALUE of a limit...] [-- SHELL COMMAND...]: adds JOBS jobs (a step a command; without any, `true`)
 * on the folder, one after the other, each when the one before is answered and verified. A line a job: ms from just
 * before the add to the verified result, ms from the first byte of the snapshot on, the result as JSON. Settings from
 * the environment, as quavon(1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/quavon.h"

static int64_t before_add_us;

/* The last word before the queue has the job is that all bytes are sent. */
static int on_progress(const QuavonProgress *progress, void *data)
{
  if (progress->stage == QUAVON_STAGE_SENDING || progress->stage == QUAVON_STAGE_PACKED)
    before_add_us = qv_clock_mono_us();
  return QUAVON_GO_ON;
}

static void fail(QuavonError *error)
{
  fprintf(stderr, "submit: %s\n", quavon_error_message(error));
  exit(1);
}

static void add_steps(QuavonJob *job, char **commands)
{
  static const char *const TRUE_ARGV[] = {"/bin/true", NULL};
  if (*commands == NULL)
    quavon_job_add_step(job, "run", TRUE_ARGV);
  for (int i = 0; commands[i] != NULL; i++) {
    const char *argv[] = {"/bin/sh", "-c", commands[i], NULL};
    char name[16];
    snprintf(name, sizeof name, "step%d", i);
    quavon_job_add_step(job, name, argv);
  }
}

static QuavonJob *describe(const char *folder, char **words)
{
  QuavonJob *job = quavon_job_new();
  quavon_job_set_folder(job, folder);
  quavon_job_set_all(job, 1);
  for (; *words != NULL && strcmp(*words, "--") != 0; words++) {
    char name[64];
    const char *value = strchr(*words, '=');
    if (value == NULL || (size_t)(value - *words) >= sizeof name)
      exit(2);
    memcpy(name, *words, (size_t)(value - *words));
    name[value - *words] = '\0';
    quavon_job_set_limit(job, name, atoll(value + 1));
  }
  add_steps(job, *words != NULL ? words + 1 : words);
  return job;
}

static void one(QuavonClient *client, const QuavonJob *job)
{
  QuavonError *error = NULL;
  char id[QUAVON_JOB_ID_SIZE];
  int64_t start_us = qv_clock_mono_us();
  if (quavon_submit(client, job, on_progress, NULL, id, &error) != 0)
    fail(error);
  QuavonResult *result = quavon_wait(client, id, NULL, NULL, &error);
  if (result == NULL)
    fail(error);
  int64_t end_us = qv_clock_mono_us();
  if (strcmp(quavon_result_status(result), "succeeded") != 0) {
    fprintf(stderr, "submit: %s\n", quavon_result_json(result));
    exit(1);
  }
  printf("%.3f %.3f %s\n", (double)(end_us - before_add_us) / 1e3, (double)(end_us - start_us) / 1e3,
         quavon_result_json(result));
  fflush(stdout);
  quavon_payload_unlink(client, result, NULL);
  quavon_result_free(result);
}

int main(int argc, char **argv)
{
  if (argc < 3)
    return 2;
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    fail(error);
  QuavonJob *job = describe(argv[1], argv + 3);
  for (long i = atol(argv[2]); i > 0; i--)
    one(client, job);
  quavon_job_free(job);
  quavon_client_close(client);
  return 0;
}
