/* SPDX-License-Identifier: Apache-2.0 */
/* build_image RECIPE ENTRY LOCK: builds the image base, as `quavon images
 * build` does. build_image --current LOCK: the hex of the current image's digest. */
#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "images/images.h"

static void print_line(const char *line, gpointer data)
{
  printf("%s\n", line);
  fflush(stdout);
}

static int fail(GError *error)
{
  fprintf(stderr, "build_image: %s\n", error->message);
  g_error_free(error);
  return 1;
}

static int print_current(const char *lock_file)
{
  GError *error = NULL;
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, &error);
  if (images == NULL)
    return fail(error);
  for (guint i = 0; i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    if (image->current && strcmp(image->name, "base") == 0)
      return printf("%s\n", image->digest + strlen("sha256:")) < 0;
  }
  return 1;
}

int main(int argc, char **argv)
{
  if (argc == 3 && strcmp(argv[1], "--current") == 0)
    return print_current(argv[2]);
  if (argc != 4) {
    fprintf(stderr, "usage: build_image RECIPE ENTRY LOCK | --current LOCK\n");
    return 64;
  }
  QvImagesBuild build = {.name = "base", .recipe_dir = argv[1], .entry_file = argv[2], .lock_file = argv[3],
                         .progress = print_line};
  GError *error = NULL;
  g_autofree char *digest = qv_images_build(&build, &error);
  if (digest == NULL)
    return fail(error);
  g_autoptr(GPtrArray) removed = NULL;
  if (!qv_images_prune(argv[3], TRUE, &removed, &error))
    return fail(error);
  printf("%s\n", digest);
  return 0;
}
