/* Checks every access of a kernel: whether it may touch these bytes, and whether it races with another. */
#include "tests/simt/simt_marks.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES = 64, TEXT_BYTES = 512, TIME_LIMIT = 0x70000000, NEAR_BYTES = 4096 };

/* What was written by other means than a kernel, and when. */
static struct {
	uintptr_t begin, end;
	uint32_t time;
} notes[NOTES];
static unsigned note_count;

/* Since when each block of the launch runs, to name it. */
static uint32_t *block_times;
static struct simt_index *block_indices;
static size_t block_count, block_capacity;

static uintptr_t image_begin, image_end; /* of the program: constants are read from it */
static uint64_t op_now;
static int
        is_shared_with_writes[SIMT_ACCESS_MAX]; /* of a range for reading: bytes of it may be written too */

int simt_has_checks(void)
{
	return machine.checks;
}

/* ---- beginnings ---- */

static int find_image(struct dl_phdr_info *info, size_t bytes, void *context)
{
	(void)bytes;
	(void)context;
	image_begin = UINTPTR_MAX;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD || info->dlpi_phdr[i].p_flags & PF_W)
			continue;
		image_begin = begin < image_begin ? begin : image_begin;
		begin += info->dlpi_phdr[i].p_memsz;
		image_end = begin > image_end ? begin : image_end;
	}
	return 1; /* the program itself comes first */
}

void check_launch_begin(void)
{
	const struct simt_launch *launch = machine.launch;

	if (!machine.checks)
		return;
	if (!image_end)
		dl_iterate_phdr(find_image, NULL);
	if (machine.time > TIME_LIMIT) {
		marks_forget();
		machine.time = machine.end_time = machine.op_time = 1;
		note_count = 0;
	}
	/* what was noted after the last launch belongs to the op; one that goes on after another began is not
	 * followed */
	if (launch->op > op_now) {
		op_now = launch->op;
		machine.op_time = machine.end_time;
	} else if (launch->op < op_now) {
		machine.op_time = 0;
	}
	machine.launch_time = ++machine.time;
	block_count = 0;
	for (int i = 0; i < launch->access_count; i++) {
		const struct simt_access *a = &launch->accesses[i];

		is_shared_with_writes[i] = 0;
		for (int j = 0; j < launch->access_count; j++) {
			const struct simt_access *b = &launch->accesses[j];

			if (b->writes && a->base < b->base + (uint64_t)b->bytes &&
			        b->base < a->base + (uint64_t)a->bytes)
				is_shared_with_writes[i] = 1;
		}
	}
}

void check_block_begin(void)
{
	if (!machine.checks)
		return;
	if (block_count == block_capacity) {
		size_t capacity = block_capacity ? 2 * block_capacity : 1024;
		uint32_t *times = realloc(block_times, capacity * sizeof(*times));
		struct simt_index *indices;

		if (!times)
			return;
		block_times = times;
		indices = realloc(block_indices, capacity * sizeof(*indices));
		if (!indices)
			return;
		block_indices = indices;
		block_capacity = capacity;
	}
	block_times[block_count] = machine.block_time;
	block_indices[block_count++] = machine.block;
}

void simt_note_write(const void *at, size_t bytes)
{
	if (!machine.checks)
		return;
	notes[note_count % NOTES].begin = (uintptr_t)at;
	notes[note_count % NOTES].end = (uintptr_t)at + bytes;
	notes[note_count++ % NOTES].time = ++machine.time;
}

static int is_noted(uintptr_t at, size_t bytes)
{
	for (unsigned i = 0; i < NOTES && i < note_count; i++)
		if (notes[i].time >= machine.op_time && at >= notes[i].begin && at + bytes <= notes[i].end)
			return 1;
	return 0;
}

/* ---- texts ---- */

static const char *verb(enum access_kind kind)
{
	return kind == ACCESS_READ ? "reads" : kind == ACCESS_ATOMIC ? "changes (atomically)" : "writes";
}

/* Who made the access of a mark. */
static void put_who(char *text, uint32_t time, uint32_t by, const char *did)
{
	const struct thread *t = &machine.threads[by & MARK_THREAD];

	if (time >= machine.block_time && !(by & MARK_GRID_MANY)) {
		snprintf(text, TEXT_BYTES, "thread (%u, %u, %u)%s %s it, with no %s in between", t->index.x,
		        t->index.y, t->index.z, by & MARK_MANY ? " and others" : "", did,
		        t->warp == machine.self->warp && !(by & MARK_BLOCK_MANY) ? "__syncwarp or barrier"
		                                                                 : "barrier");
		return;
	}
	for (size_t i = block_count; i-- > 0;) {
		if (block_times[i] <= time && !(by & MARK_GRID_MANY)) {
			snprintf(text, TEXT_BYTES,
			        "block (%u, %u, %u), thread (%u, %u, %u) of this launch %s it",
			        block_indices[i].x, block_indices[i].y, block_indices[i].z, t->index.x,
			        t->index.y, t->index.z, did);
			return;
		}
	}
	snprintf(text, TEXT_BYTES, "other blocks of this launch %s it", did);
}

static void put_trouble(char *text, const struct mark *mark, enum trouble trouble)
{
	switch (trouble) {
	case TROUBLE_PENDING:
		snprintf(text, TEXT_BYTES, "a cp.async to it has not been waited for");
		break;
	case TROUBLE_AFTER_WRITE:
		put_who(text, mark->write_time, mark->write_by, "wrote");
		break;
	case TROUBLE_AFTER_READ:
		put_who(text, mark->read_time, mark->read_by, "read");
		break;
	default:
		snprintf(text, TEXT_BYTES, "no thread of this block wrote it so far");
	}
}

/* ---- shared memory ---- */

static void shared_outside(uintptr_t at, size_t bytes, enum access_kind kind)
{
	for (int i = 0; i < machine.array_count; i++) {
		const struct shared_array *a = &machine.arrays[i];
		uintptr_t begin = (uintptr_t)a->at, end = begin + a->bytes;

		if (at >= begin && at + bytes > end && at + bytes - end <= NEAR_BYTES / 16)
			thread_stop(FOUND_BAD_ADDRESS,
			        "out of bounds: %s %zu bytes of shared memory, %zu bytes past the end of "
			        "an array of %zu bytes",
			        verb(kind), bytes, (size_t)(at + bytes - end), a->bytes);
		if (at < begin && begin - at < NEAR_BYTES / 16)
			thread_stop(FOUND_BAD_ADDRESS,
			        "out of bounds: %s %zu bytes of shared memory, %zu bytes before an array of "
			        "%zu bytes",
			        verb(kind), bytes, (size_t)(begin - at), a->bytes);
	}
	thread_stop(FOUND_BAD_ADDRESS, "out of bounds: %s %zu bytes of shared memory that no array has",
	        verb(kind), bytes);
}

static void shared_trouble(uintptr_t at, size_t bytes, enum access_kind kind,
        const struct shared_array *array, const struct mark *mark, enum trouble trouble)
{
	char text[TEXT_BYTES];

	put_trouble(text, mark, trouble);
	thread_stop(FOUND_FAILURE, "%s: %s %zu bytes at %zu of a shared array of %zu bytes; %s",
	        trouble == TROUBLE_UNWRITTEN ? "uninitialised shared memory"
	        : trouble == TROUBLE_PENDING ? "missing cp_async_wait"
	                                     : "race in shared memory",
	        verb(kind), bytes, (size_t)(at - (uintptr_t)array->at), array->bytes, text);
}

static void check_shared(uintptr_t at, size_t bytes, enum access_kind kind)
{
	const struct shared_array *array = machine.arrays, *end = array + machine.array_count;

	while (array < end && (at < (uintptr_t)array->at || at + bytes > (uintptr_t)array->at + array->bytes))
		array++;
	if (array == end)
		shared_outside(at, bytes, kind);
	for (uintptr_t p = at; p < at + bytes;) {
		uint32_t which = p & 1 ? 2 : at + bytes - p >= 2 ? 3 : 1;
		struct mark *mark = &shared_marks[(p - (uintptr_t)machine.shared) / 2];
		enum trouble trouble = TROUBLE_NONE;

		if (which != 3 ||
		        !mark_access_simply(mark, kind, machine.block_time, machine.barrier_time, 1))
			trouble = mark_access(mark, which, kind, machine.block_time, machine.block_time, 1);
		if (trouble)
			shared_trouble(at, bytes, kind, array, mark, trouble);
		p = (p | 1) + 1;
	}
}

void check_async_begin(const void *at, size_t bytes)
{
	if ((const char *)at < machine.shared || (const char *)at >= machine.shared + SHARED_REGION_BYTES)
		thread_stop(FOUND_BAD_ADDRESS, "cp.async to %p, which is not in shared memory", at);
	if (machine.checks)
		check_shared((uintptr_t)at, bytes, ACCESS_ASYNC);
}

void check_async_end(const void *at, size_t bytes)
{
	for (size_t i = 0; machine.checks && i < bytes; i += 2) {
		struct mark *mark = &shared_marks[((size_t)((const char *)at - machine.shared) + i) / 2];

		mark->write_by &= ~(uint32_t)MARK_PENDING;
		mark->write_time = machine.self->warp->time;
	}
}

/* ---- global memory ---- */

/* Names the range that is nearest. */
static void global_outside(uintptr_t at, size_t bytes, enum access_kind kind)
{
	const struct simt_launch *launch = machine.launch;
	const struct simt_access *nearest = NULL;
	uint64_t nearest_bytes = NEAR_BYTES;
	int is_before = 0;

	for (int i = 0; i < launch->access_count; i++) {
		const struct simt_access *a = &launch->accesses[i];
		uint64_t end = a->base + (uint64_t)a->bytes;
		uint64_t before = at < a->base ? a->base - at : 0,
		         past = at + bytes > end ? at + bytes - end : 0;

		if (!before && !past)
			thread_stop(FOUND_BAD_ADDRESS,
			        "write to a read-only operand: %s %zu bytes at %zu of %zu bytes that the op "
			        "may only "
			        "read",
			        verb(kind), bytes, (size_t)(at - a->base), (size_t)a->bytes);
		if (before + past < nearest_bytes) {
			nearest = a;
			nearest_bytes = before + past;
			is_before = before > 0;
		}
	}
	if (!nearest)
		thread_stop(FOUND_BAD_ADDRESS,
		        "out of bounds: %s %zu bytes at %p, which the op may not touch", verb(kind), bytes,
		        (void *)at);
	thread_stop(FOUND_BAD_ADDRESS,
	        "out of bounds: %s %zu bytes at %p, %zu bytes %s %zu bytes that the op may %s", verb(kind),
	        bytes, (void *)at, (size_t)nearest_bytes, is_before ? "before the" : "past the end of",
	        (size_t)nearest->bytes, nearest->writes ? "write" : "read");
}

/* Whether the op may touch it. *race: whether it can race at all; *written: what is read must have been
 * written by this op. */
static int is_allowed(uintptr_t at, size_t bytes, enum access_kind kind, int *race, int *written)
{
	const struct simt_launch *launch = machine.launch;
	int is_writable = 0, is_readable = 0;

	*race = 1;
	*written = 0;
	if (launch->access_count < 0)
		return 1;
	for (int i = 0; i < launch->access_count; i++) {
		const struct simt_access *a = &launch->accesses[i];

		if (at < a->base || at + bytes > a->base + (uint64_t)a->bytes)
			continue;
		if (a->writes)
			is_writable = 1;
		else
			is_readable = 1;
		if (!a->writes && kind == ACCESS_READ) {
			*race = is_shared_with_writes[i];
			return 1;
		}
	}
	*written = kind != ACCESS_WRITE && !is_readable && machine.op_time;
	return is_writable;
}

/* Constants of the program and the kernel's arguments. */
static int is_constant(uintptr_t at, size_t bytes)
{
	uintptr_t args = (uintptr_t)machine.launch->args;

	return (at >= image_begin && at + bytes <= image_end) ||
	       (at >= args && at + bytes <= args + machine.launch->args_bytes);
}

static void global_trouble(
        uintptr_t at, size_t bytes, enum access_kind kind, const struct mark *mark, enum trouble trouble)
{
	char text[TEXT_BYTES];

	if (trouble == TROUBLE_UNWRITTEN)
		thread_stop(FOUND_BAD_ADDRESS,
		        "read of a write-only operand: %s %zu bytes at %p, which the op may write and has "
		        "not "
		        "written yet",
		        verb(kind), bytes, (void *)at);
	put_trouble(text, mark, trouble);
	thread_stop(FOUND_FAILURE, "race in global memory: %s %zu bytes at %p; %s", verb(kind), bytes,
	        (void *)at, text);
}

static void check_global(uintptr_t at, size_t bytes, enum access_kind kind)
{
	int race, written;

	if (!is_allowed(at, bytes, kind, &race, &written))
		global_outside(at, bytes, kind);
	if (written && is_noted(at, bytes))
		written = 0;
	if (!race)
		return;
	for (uintptr_t p = at; p < at + bytes;) {
		uint32_t which = p & 1 ? 2 : at + bytes - p >= 2 ? 3 : 1;
		struct mark *mark = mark_of_global(p);
		enum trouble trouble;

		if (!mark)
			thread_stop(FOUND_FAILURE, "the emulator is out of memory");
		if (which == 3 &&
		        mark_access_simply(mark, kind, machine.op_time, machine.launch_time, written))
			trouble = TROUBLE_NONE;
		else
			trouble =
			        mark_access(mark, which, kind, machine.launch_time, machine.op_time, written);
		if (trouble)
			global_trouble(at, bytes, kind, mark, trouble);
		p = (p | 1) + 1;
	}
}

static void check_align(uintptr_t at, size_t bytes, enum access_kind kind, size_t align)
{
	if (at & (align - 1))
		thread_stop(FOUND_MISALIGNED,
		        "misaligned: %s %zu bytes at %p, which is not a multiple of %zu", verb(kind), bytes,
		        (void *)at, align);
}

void check_access(const void *at, size_t bytes, enum access_kind kind, size_t align)
{
	if (!machine.checks)
		return;
	if ((uintptr_t)at - (uintptr_t)machine.shared < SHARED_REGION_BYTES) {
		check_align((uintptr_t)at, bytes, kind, align);
		check_shared((uintptr_t)at, bytes, kind);
	} else if (kind != ACCESS_READ || !is_constant((uintptr_t)at, bytes)) {
		check_align((uintptr_t)at, bytes, kind, align);
		check_global((uintptr_t)at, bytes, kind);
	}
}
