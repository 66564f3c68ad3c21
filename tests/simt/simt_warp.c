/* Joint operations of the lanes of a warp. Each lane waits with a slot for its input and output; the last
 * one to arrive does the work of all. */
#include "tests/simt/simt_machine.h"

#include <string.h>

static struct thread *lane_of(struct warp *warp, int lane)
{
	return &warp->lanes[lane];
}

/* All lanes of mask wait for this meeting of this mask. */
static int is_complete(struct warp *warp, uint32_t mask, const struct meeting *meeting)
{
	for (uint32_t left = mask; left; left &= left - 1) {
		struct thread *t = lane_of(warp, __builtin_ctz(left));

		if (t != machine.self &&
		        (t->state != THREAD_IN_WARP || t->meeting != meeting || t->mask != mask))
			return 0;
	}
	return 1;
}

static void check_place(struct warp *warp, uint32_t mask, const struct meeting *meeting)
{
	struct thread *self = machine.self;

	for (uint32_t left = mask; left; left &= left - 1) {
		struct thread *t = lane_of(warp, __builtin_ctz(left));

		if (t->line != self->line || (t->file != self->file && strcmp(t->file, self->file)))
			thread_stop(FOUND_FAILURE,
			        "divergent warp: this lane came to the %s at %s:%d, lane %d to the one at "
			        "%s:%d",
			        meeting->name, self->file, self->line, t->lane, t->file, t->line);
	}
}

void warp_meet(uint32_t mask, const struct meeting *meeting, void *slot, const char *file, int line)
{
	struct thread *self = machine.self;
	struct warp *warp = self->warp;
	uint32_t there = warp->lane_count == SIMT_WARP ? 0xffffffffu : (1u << warp->lane_count) - 1;

	if (!(mask >> self->lane & 1))
		thread_stop(FOUND_FAILURE, "%s at %s:%d: lane %d is not in its own mask 0x%x", meeting->name,
		        file, line, self->lane, mask);
	if (mask & ~there)
		thread_stop(FOUND_FAILURE, "%s at %s:%d: mask 0x%x names lanes beyond the block's threads",
		        meeting->name, file, line, mask);
	if (mask & warp->ended)
		thread_stop(FOUND_FAILURE, "%s at %s:%d: of mask 0x%x, lanes 0x%x have ended", meeting->name,
		        file, line, mask, mask & warp->ended);
	self->meeting = meeting;
	self->slot = slot;
	self->mask = mask;
	self->file = file;
	self->line = line;
	warp->waiting |= 1u << self->lane;
	if ((warp->waiting & mask) != mask || !is_complete(warp, mask, meeting)) {
		thread_wait(THREAD_IN_WARP, file, line);
		return;
	}
	if (meeting->aligned)
		check_place(warp, mask, meeting);
	meeting->complete(warp, mask);
	warp->waiting &= ~mask;
	for (uint32_t left = mask; left; left &= left - 1)
		thread_ready(lane_of(warp, __builtin_ctz(left)));
	thread_wait(THREAD_READY, file, line);
}

/* ---- shuffles ---- */

struct shuffle_slot {
	uint64_t in, out;
	enum simt_shuffle how;
	int by, width;
};

/* The lane that this one reads from, as PTX's shfl.sync has it; its own where that would leave the segment.
 */
static int shuffle_source(const struct shuffle_slot *s, int lane)
{
	int first = lane & ~(s->width - 1), last = first + s->width - 1, from = lane;

	switch (s->how) {
	case SIMT_IDX:
		return first + (s->by & (s->width - 1));
	case SIMT_UP:
		from = lane - s->by;
		return from < first ? lane : from;
	case SIMT_DOWN:
		from = lane + s->by;
		return from > last ? lane : from;
	case SIMT_XOR:
		from = lane ^ s->by;
		return from > last ? lane : from;
	}
	return lane;
}

static void shuffle_complete(struct warp *warp, uint32_t mask)
{
	for (uint32_t left = mask; left; left &= left - 1) {
		struct thread *t = lane_of(warp, __builtin_ctz(left));
		struct shuffle_slot *s = t->slot;
		int from = shuffle_source(s, t->lane);

		if (from < 0 || from >= SIMT_WARP || !(mask >> from & 1))
			thread_stop(FOUND_FAILURE,
			        "shuffle at %s:%d: lane %d reads from lane %d, which is not in mask 0x%x",
			        t->file, t->line, t->lane, from, mask);
		s->out = ((struct shuffle_slot *)lane_of(warp, from)->slot)->in;
	}
}

uint64_t simt_warp_shuffle(
        uint32_t mask, uint64_t value, enum simt_shuffle how, int by, int width, const char *file, int line)
{
	static const struct meeting meetings[] = {
	        [SIMT_IDX] = {"__shfl_sync", shuffle_complete, 0},
	        [SIMT_UP] = {"__shfl_up_sync", shuffle_complete, 0},
	        [SIMT_DOWN] = {"__shfl_down_sync", shuffle_complete, 0},
	        [SIMT_XOR] = {"__shfl_xor_sync", shuffle_complete, 0},
	};
	struct shuffle_slot slot = {value, value, how, by, width};

	if (width < 1 || width > SIMT_WARP || (width & (width - 1)))
		thread_stop(FOUND_FAILURE, "shuffle at %s:%d: width %d", file, line, width);
	warp_meet(mask, &meetings[how], &slot, file, line);
	return slot.out;
}

/* ---- votes, matches, sums ---- */

struct vote_slot {
	uint64_t value;
	uint32_t out;
	enum simt_reduce how;
};

static void ballot_complete(struct warp *warp, uint32_t mask)
{
	uint32_t holds = 0;

	for (uint32_t left = mask; left; left &= left - 1) {
		int lane = __builtin_ctz(left);

		if (((struct vote_slot *)lane_of(warp, lane)->slot)->value)
			holds |= 1u << lane;
	}
	for (uint32_t left = mask; left; left &= left - 1)
		((struct vote_slot *)lane_of(warp, __builtin_ctz(left))->slot)->out = holds;
}

uint32_t simt_warp_ballot(uint32_t mask, int predicate, const char *file, int line)
{
	static const struct meeting meeting = {"vote", ballot_complete, 0};
	struct vote_slot slot = {.value = predicate != 0};

	warp_meet(mask, &meeting, &slot, file, line);
	return slot.out;
}

static void match_complete(struct warp *warp, uint32_t mask)
{
	for (uint32_t left = mask; left; left &= left - 1) {
		struct vote_slot *s = lane_of(warp, __builtin_ctz(left))->slot;

		s->out = 0;
		for (uint32_t others = mask; others; others &= others - 1) {
			int lane = __builtin_ctz(others);

			if (((struct vote_slot *)lane_of(warp, lane)->slot)->value == s->value)
				s->out |= 1u << lane;
		}
	}
}

uint32_t simt_warp_match(uint32_t mask, uint64_t value, const char *file, int line)
{
	static const struct meeting meeting = {"__match_any_sync", match_complete, 0};
	struct vote_slot slot = {.value = value};

	warp_meet(mask, &meeting, &slot, file, line);
	return slot.out;
}

static uint32_t reduce_two(enum simt_reduce how, uint32_t a, uint32_t b)
{
	switch (how) {
	case SIMT_ADD:
		return a + b;
	case SIMT_MIN:
		return (int32_t)a < (int32_t)b ? a : b;
	case SIMT_MAX:
		return (int32_t)a > (int32_t)b ? a : b;
	case SIMT_UMIN:
		return a < b ? a : b;
	case SIMT_UMAX:
		return a > b ? a : b;
	case SIMT_BITAND:
		return a & b;
	case SIMT_BITOR:
		return a | b;
	case SIMT_BITXOR:
		return a ^ b;
	}
	return a;
}

static void reduce_complete(struct warp *warp, uint32_t mask)
{
	struct vote_slot *first = lane_of(warp, __builtin_ctz(mask))->slot;
	uint32_t value = (uint32_t)first->value;

	for (uint32_t left = mask & (mask - 1); left; left &= left - 1)
		value = reduce_two(first->how, value,
		        (uint32_t)((struct vote_slot *)lane_of(warp, __builtin_ctz(left))->slot)->value);
	for (uint32_t left = mask; left; left &= left - 1)
		((struct vote_slot *)lane_of(warp, __builtin_ctz(left))->slot)->out = value;
}

uint32_t simt_warp_reduce(uint32_t mask, uint32_t value, enum simt_reduce how, const char *file, int line)
{
	static const struct meeting meetings[] = {
	        [SIMT_ADD] = {"__reduce_add_sync", reduce_complete, 0},
	        [SIMT_MIN] = {"__reduce_min_sync", reduce_complete, 0},
	        [SIMT_MAX] = {"__reduce_max_sync", reduce_complete, 0},
	        [SIMT_UMIN] = {"__reduce_min_sync (unsigned)", reduce_complete, 0},
	        [SIMT_UMAX] = {"__reduce_max_sync (unsigned)", reduce_complete, 0},
	        [SIMT_BITAND] = {"__reduce_and_sync", reduce_complete, 0},
	        [SIMT_BITOR] = {"__reduce_or_sync", reduce_complete, 0},
	        [SIMT_BITXOR] = {"__reduce_xor_sync", reduce_complete, 0},
	};
	struct vote_slot slot = {.value = value, .how = how};

	warp_meet(mask, &meetings[how], &slot, file, line);
	return slot.out;
}

/* ---- __syncwarp ---- */

/* The only one that orders memory: CUDA promises nothing of it for shuffles and votes. Of all lanes only:
 * what an access is compared with has one time per warp. */
static void sync_complete(struct warp *warp, uint32_t mask)
{
	uint32_t there = warp->lane_count == SIMT_WARP ? 0xffffffffu : (1u << warp->lane_count) - 1;

	if ((mask | warp->ended) == there)
		warp->time = ++machine.time;
}

void simt_warp_sync(uint32_t mask, const char *file, int line)
{
	static const struct meeting meeting = {"__syncwarp", sync_complete, 0};

	warp_meet(mask, &meeting, NULL, file, line);
}

uint32_t simt_warp_active(void)
{
	struct warp *warp = machine.self->warp;
	uint32_t there = warp->lane_count == SIMT_WARP ? 0xffffffffu : (1u << warp->lane_count) - 1;

	return there & ~warp->ended;
}
