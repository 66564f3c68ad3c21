/* records_json FILE: prints the records that ferry reads from a data file, as JSON lines with sorted keys.
 * tests/golden/check_records.py compares them with the output of pyarrow and Python's csv. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "data/source/records.h"

int main(int argc, char **argv)
{
	struct records *r = NULL;
	json_t *record;
	int rc = argc == 2 ? records_open(&r, argv[1]) : err_set(ERR_INPUT, "usage: records_json FILE");

	while (rc >= 0 && (rc = records_next(r, &record)) > 0) {
		json_dumpf(record, stdout,
		        JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
		putchar('\n');
		json_decref(record);
	}
	if (rc < 0)
		fprintf(stderr, "%s\n", err_text());
	records_close(r);
	return rc < 0 ? 1 : 0;
}
