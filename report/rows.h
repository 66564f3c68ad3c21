/* Reads the rows of metrics.jsonl into the columns and totals of a run. */
#ifndef FERRY_REPORT_ROWS_H
#define FERRY_REPORT_ROWS_H

#include "report/run.h"

/* Lines that are no rows are left out, with a warning and a note. ERR_INPUT: the file cannot be opened, or
 * has no row; ERR_IO, ERR_NOMEM. */
int report_rows_read(struct report_run *r, const char *path);

/* Warns, and adds the line to the notes of the run. */
void report_note(struct report_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
