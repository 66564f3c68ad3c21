/* The page of a report: one HTML file without any other, readable without its script.
 *
 * It is also well-formed XML. All text that comes from files is escaped (report/html.h).
 */
#ifndef FERRY_REPORT_PAGE_H
#define FERRY_REPORT_PAGE_H

#include "report/run.h"

/* A line of the page's head, by which a former report is recognised. */
extern const char page_marker[];

enum { PAGE_RUNS_MAX = 32 };

/* Appends the page of 1 to PAGE_RUNS_MAX runs. It reduces their columns further, so that the page stays below
 * a megabyte. The same runs give the same bytes. ERR_NOMEM. */
int page_write(struct str *out, struct report_run *runs, int run_count);

#endif
