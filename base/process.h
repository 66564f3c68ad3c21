/* Memory of this process as Linux counts it: resident bytes now, and their peak so far. */
#ifndef FERRY_BASE_PROCESS_H
#define FERRY_BASE_PROCESS_H

#include <stdint.h>

/* 0 if the system does not tell. */
int64_t process_resident_bytes(void);
int64_t process_peak_bytes(void);

/* Restarts the peak at the present value. No effect if the system cannot (clear_refs, proc(5)). */
void process_peak_reset(void);

#endif
