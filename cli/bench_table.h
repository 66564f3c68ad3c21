/* Prints a benchmark's result as text: figures one per line, lists of objects as tables. */
#ifndef FERRY_CLI_BENCH_TABLE_H
#define FERRY_CLI_BENCH_TABLE_H

#include "base/str.h"

#include <jansson.h>

/* Appends the text; str_check reports lack of memory. Columns are the keys in the order of their first
 * appearance; keys of objects inside a row have a dot. A table of more than 100 columns is turned: a line
 * for each key. A key that a row lacks is "-". Bytes are shown in GiB or KiB, under the key without
 * "_bytes". */
void bench_table_write(struct str *out, const json_t *result);

#endif
