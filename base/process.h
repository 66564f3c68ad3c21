/* Memory of this process, as Linux counts it: resident bytes now, and at most so far. */
#ifndef FERRY_BASE_PROCESS_H
#define FERRY_BASE_PROCESS_H

#include <stdint.h>

/* 0 where the system does not say. */
int64_t process_resident_bytes(void);
int64_t process_peak_bytes(void);

/* Peaks count from here on, where the system can forget the one before (clear_refs, proc(5)). */
void process_peak_reset(void);

#endif
