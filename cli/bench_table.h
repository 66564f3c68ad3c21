/* Prints a benchmark's result as text: figures one per line, lists of objects as tables. */
#ifndef FERRY_CLI_BENCH_TABLE_H
#define FERRY_CLI_BENCH_TABLE_H

#include "base/str.h"

#include <jansson.h>

/* Appends the text; str_check tells whether memory sufficed. Columns are the keys in the order of their first
 * appearance, objects inside a row with a dot; a key that a row lacks is "-" there. Bytes are said in GiB or
 * KiB under the key less its "_bytes". */
void bench_table_write(struct str *out, const json_t *result);

#endif
