/* Decides when to retry a failed save, and reports it. */
#include "train/save_trouble.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/world.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

static const int64_t second_ns = 1000000000;
enum { LONGEST_S = 300, SLICE_MS = 50 };

/* A hash of the text without hex digits, because texts of one kind differ in steps, sizes and ids. */
static uint64_t kind_of(const char *text)
{
	char kind[ERR_TEXT_BYTES];
	size_t len = 0;

	for (; *text && len < sizeof(kind); text++)
		if (!isxdigit((unsigned char)*text))
			kind[len++] = *text;
	return XXH3_64bits(kind, len);
}

static int is_told(struct save_trouble *s, const char *text)
{
	uint64_t kind = kind_of(text);

	for (int i = 0; i < s->told_count; i++)
		if (s->told[i] == kind)
			return 1;
	if (s->told_count < SAVE_TROUBLE_KINDS)
		s->told[s->told_count++] = kind;
	return 0;
}

static int64_t delay_s(int failures)
{
	int64_t s = failures > 1 ? (int64_t)1 << (failures > 11 ? 9 : failures - 2) : 0;

	return s < LONGEST_S ? s : LONGEST_S;
}

int save_trouble_is_lasting(int rc)
{
	return rc == ERR_DEVICE || rc == ERR_INTERNAL || rc == ERR_NONFINITE;
}

/* What is at stake, where the reason was said before. */
static void still_warn(int64_t step, int64_t saved_step, int failures)
{
	if (saved_step > 0)
		log_warn("step %" PRId64
		         ": still not saved (%d failures); the newest checkpoint is of step %" PRId64,
		        step, failures, saved_step);
	else
		log_warn("step %" PRId64 ": still not saved (%d failures); there is no checkpoint yet", step,
		        failures);
}

int save_trouble_take(struct save_trouble *s, int64_t step, int64_t saved_step, int rc)
{
	if (save_trouble_is_lasting(rc))
		return rc;
	s->in_row++;
	s->retry_ns = clock_now_ns() + delay_s(s->in_row) * second_ns;
	if (world_self()->rank)
		return 0;
	if (!is_told(s, err_text()))
		log_warn("step %" PRId64 ": saving failed and will be tried again: %s", step, err_text());
	else if (!(s->in_row & (s->in_row - 1)))
		still_warn(step, saved_step, s->in_row);
	return 0;
}

void save_trouble_end(struct save_trouble *s)
{
	if (s->in_row && !world_self()->rank)
		log_info("saving works again, after %d failure%s", s->in_row, s->in_row == 1 ? "" : "s");
	*s = (struct save_trouble){0};
}

int save_trouble_is_due(const struct save_trouble *s)
{
	double due = s->in_row && !world_self()->rank && clock_now_ns() >= s->retry_ns;
	int rc = s->in_row ? world_sum(&due, 1) : 0;

	return rc ? rc : due > 0;
}

void save_trouble_wait(int number, int (*signal)(int64_t steps_left))
{
	int64_t end = clock_now_ns() + ((int64_t)1 << (number - 1)) * second_ns;
	int before = signal ? signal(0) : 0;

	while (clock_now_ns() < end && (!signal || signal(0) == before))
		nanosleep(&(struct timespec){.tv_nsec = SLICE_MS * 1000000L}, NULL);
}
