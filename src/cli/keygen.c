/* SPDX-License-Identifier: Apache-2.0 */
/* quavon keygen */
#include <stdio.h>

#include "cli/verb.h"
#include "client/key_file.h"

int qv_verb_keygen(int argc, char **argv)
{
  int status = QV_CLI_OK;
  if (!qv_options_parse("keygen", NULL, &argc, &argv, &status))
    return status;
  if (argc != 2)
    return qv_usage("keygen", "the name of one new file is wanted");
  g_autoptr(GError) error = NULL;
  g_autoptr(QvKey) key = qv_key_file_create(argv[1], &error);
  if (key == NULL) {
    qv_complain("%s", error->message);
    return QV_CLI_FAILED;
  }
  /* The id is public: it names the key in envelopes. */
  puts(qv_key_id(key));
  return QV_CLI_OK;
}
