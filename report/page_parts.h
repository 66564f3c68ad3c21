/* Parts of the page that page.c puts together. */
#ifndef FERRY_REPORT_PAGE_PARTS_H
#define FERRY_REPORT_PAGE_PARTS_H

#include "report/keys.h"

extern const char page_style[], page_script[];

enum { PAGE_COLOURS = 8 }; /* classes c0 to c7 of the style */

/* Appends the table of runs with the keys that differ, and lines about what was left out. */
void page_summary(
        struct str *out, const struct report_run *runs, int run_count, const struct report_keys *keys);

/* Appends the table of configuration keys, a column for each run: first the keys that differ between runs,
 * then those that differ from their default. */
void page_configuration(
        struct str *out, const struct report_run *runs, int run_count, const struct report_keys *keys);

#endif
