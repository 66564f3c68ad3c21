/* Says which candidates there were. */
#include "placement/choice.h"

#include "base/mem.h"
#include "placement/choice_candidate.h"

#include <stdlib.h>

static int pointed_by_step(const void *a, const void *b)
{
	return choice_by_step(
	        *(const struct choice_candidate *const *)a, *(const struct choice_candidate *const *)b);
}

static void candidate_text(
        struct str *out, const struct choice_candidate *k, const struct unit_map *units, const char *mark)
{
	str_printf(out, "%s ", mark);
	str_printf(out, "%.1f MiB", (double)k->device_bytes / 0x1p20);
	if (k->step_ms > 0)
		str_printf(
		        out, ", %.1f ms (at least %.1f, limited by %s)", k->step_ms, k->bound_ms, k->binds);
	str_printf(out, ": state of %d of %d groups, weights of %d, %s of %d of %d layers", k->states,
	        units->unit_count, k->weights_stay, acts_level_title(k->kept_level), k->kept,
	        units->model->block_group_count);
	if (k->hosted && k->hosted_level == k->kept_level)
		str_printf(out, ", of %d in host memory", k->hosted);
	else if (k->hosted)
		str_printf(out, ", %s of %d in host memory", acts_level_title(k->hosted_level), k->hosted);
	if (k->spills)
		str_add(out, ", other activations go to host memory");
	if (k->ahead >= 0)
		str_printf(out, ", %d prefetched", k->ahead);
	str_add_char(out, '\n');
}

void choice_explain(struct str *out, const struct choice *f, const struct unit_map *units)
{
	enum { SHOWN = 6 };
	const struct choice_candidate **sorted = mem_alloc((size_t)f->count + 1, sizeof(*sorted)),
	                              *shown_ways[CHOICE_WAYS + 1];
	int ways = 0;

	for (int i = 0; i < f->count && sorted; i++)
		sorted[i] = &f->list[i];
	if (sorted)
		qsort(sorted, (size_t)f->count, sizeof(*sorted), pointed_by_step);
	if (f->count)
		str_printf(out, "%d plans, %d simulated; the fastest, and the best of each streaming mode:\n",
		        f->planned_count, f->count);
	for (int i = 0; i < f->count && sorted; i++) {
		int seen = 0;

		for (int w = 0; w < ways; w++)
			seen |= shown_ways[w]->ahead == sorted[i]->ahead &&
			        shown_ways[w]->spills == sorted[i]->spills;
		if (!seen)
			shown_ways[ways++] = sorted[i];
		if (!seen || i < SHOWN || sorted[i] == &f->list[f->best])
			candidate_text(out, sorted[i], units, sorted[i] == &f->list[f->best] ? "*" : " ");
	}
	mem_free(sorted);
}
