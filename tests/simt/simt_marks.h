/* Finds races: remembers the last accesses to each byte.
 *
 * A mark is for two bytes. It has the last write and the last read, each with its time, its thread and a
 * bit for each byte. Other reads at the same time make it "many". An access is over for the running thread
 * if a barrier or __syncwarp lies between (simt_machine.h: time). Two accesses to the same byte are a race
 * if the earlier is not over and one of them writes. If threads write single bytes, the mark has only the
 * last of the two.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_MARKS_H
#define FERRY_TESTS_SIMT_SIMT_MARKS_H

#include "tests/simt/simt_machine.h"

enum {
	MARK_THREAD = 0x3ff,
	MARK_BYTES_SHIFT = 10, /* the bytes of the access */
	MARK_BYTES = 3 << 10,
	MARK_WRITTEN_SHIFT = 12, /* bytes written since the block, or the op, began */
	MARK_WRITTEN = 3 << 12,
	MARK_PENDING = 1 << 16, /* a cp.async without a wait */
	MARK_ATOMIC = 1 << 17,
	MARK_WARP_MANY = 1 << 18,  /* several lanes of the thread's warp */
	MARK_BLOCK_MANY = 1 << 19, /* several warps */
	MARK_GRID_MANY = 1 << 20,  /* several blocks */
	MARK_MANY = 7 << 18,
};

struct mark {
	uint32_t write_time, write_by, read_time, read_by;
};

enum trouble {
	TROUBLE_NONE,
	TROUBLE_UNWRITTEN,   /* a read of a byte that nobody wrote */
	TROUBLE_PENDING,     /* a cp.async to it is in progress */
	TROUBLE_AFTER_WRITE, /* race with a write */
	TROUBLE_AFTER_READ,  /* race with a read */
};

/* Marks an access of the running thread to these of the two bytes, and compares it with earlier ones.
 * Accesses from before `origin` cannot race. A byte counts as written if a write has the time `since` or
 * later. */
enum trouble mark_access(struct mark *mark, uint32_t bytes, enum access_kind kind, uint32_t origin,
        uint32_t since, int must_be_written);

/* mark_access for both bytes if all earlier accesses are over: the usual case. 1, or 0 if it did nothing.
 * Accesses from before `over` are over, also if `origin` is earlier. */
static inline __attribute__((always_inline)) int mark_access_simply(
        struct mark *mark, enum access_kind kind, uint32_t since, uint32_t over, int must_be_written)
{
	const uint32_t both = 3u << MARK_BYTES_SHIFT, self = (uint32_t)machine.self->number | both;

	if (mark->write_time >= over || (mark->write_by & MARK_PENDING))
		return 0;
	if (kind == ACCESS_WRITE) {
		if (mark->read_time >= over)
			return 0;
		mark->write_by = self | MARK_WRITTEN;
		mark->write_time = machine.self->warp->time;
		return 1;
	}
	if (kind != ACCESS_READ ||
	        (must_be_written &&
	                (mark->write_time < since || (mark->write_by & MARK_WRITTEN) != MARK_WRITTEN)))
		return 0;
	if (mark->read_time < over)
		mark->read_by = self;
	else if (mark->read_by != self &&
	         (mark->read_by & (MARK_BLOCK_MANY | both)) != (MARK_BLOCK_MANY | both))
		return 0;
	mark->read_time = machine.self->warp->time;
	return 1;
}

/* The mark of two bytes of global memory; NULL if the emulator is out of memory. */
struct mark *mark_of_global(uintptr_t address);
extern struct mark shared_marks[SHARED_REGION_BYTES / 2];

/* Clears all marks. */
void marks_forget(void);

#endif
