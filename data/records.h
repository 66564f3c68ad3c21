/* The records of a JSON file, one at a time: JSON lines, or the elements of one array.
 *
 * A file whose first character is '[' is an array; anything else has one record per line, empty lines
 * skipped. Memory is one record and a read buffer, whatever the size of the file.
 */
#ifndef FERRY_DATA_RECORDS_H
#define FERRY_DATA_RECORDS_H

#include <jansson.h>
#include <stdint.h>

struct records;

int records_open(struct records **r, const char *path);
void records_close(struct records *r);

/* The next record (json_decref it): 1 with *record, 0 at the end, or a negative ERR_* that names file and
 * line. */
int records_next(struct records *r, json_t **record);

/* Where the record last returned stands: "file:12", or "file: element 3 (line 40)". Valid until the next
 * call. */
const char *records_where(const struct records *r);

#endif
