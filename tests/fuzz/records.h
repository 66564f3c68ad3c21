/* Reads all records of a file by the kind of its name: each must be an object, and the file must end. */
#ifndef FERRY_TESTS_FUZZ_RECORDS_H
#define FERRY_TESTS_FUZZ_RECORDS_H

#include "tests/fuzz/fuzz.h"

#include "data/source/records.h"

static inline void fuzz_records(const char *name, const uint8_t *data, size_t len)
{
	struct records *r = NULL;
	json_t *record = NULL;
	int err = records_open(&r, fuzz_file(name, data, len));

	while (!err && (err = records_next(r, &record)) > 0) {
		fuzz_require(json_is_object(record) && *records_where(r));
		json_decref(record);
		record = NULL;
		err = 0;
	}
	if (err < 0)
		fuzz_refused(err);
	records_close(r);
}

#endif
