/* Fills a budget: as many kept activations and resident weights as fit. */
#include "placement/choice_fill.h"

#include "placement/choice_bound.h"

#include <math.h>

/* Bytes that a candidate leaves free; INFINITY without a limit. */
static double room_bytes(const struct chooser *s, const struct choice_candidate *k)
{
	const struct choice_limits *l = s->limits;
	double room = s->device_bytes ? (double)(s->device_bytes - k->device_bytes) : INFINITY;

	if (s->host_bytes && l->device_is_host && (double)(s->host_bytes - k->host_bytes) < room)
		room = (double)(s->host_bytes - k->host_bytes);
	return room;
}

/* The place of a candidate's way among the ways; after them for one that is no way's. */
static int way_index(const struct chooser *s, const struct choice_candidate *k)
{
	int i = 0;

	while (i < s->way_count && (s->ways[i].ahead != k->ahead || s->ways[i].spills != k->spills))
		i++;
	return i;
}

const struct way *choice_way_of(const struct chooser *s, const struct choice_candidate *k)
{
	return &s->ways[way_index(s, k)];
}

/* The next number to try, between one that fits (low) and one that does not (high). It begins with the last
 * one if a bound says that no more fit. If the bytes of one more are known, it is the last number that should
 * fit, or the first that should not. */
static int count_guess(const struct chooser *s, const struct choice_candidate *fitting, int low, int high,
        double one_bytes, int tried, int is_bounded)
{
	double room = room_bytes(s, fitting);
	double more = one_bytes > 0 && isfinite(room) ? room / one_bytes : tried ? 0 : high - low - 1;

	if (!tried && is_bounded)
		return high - 1;
	if (tried >= 5 || (tried && more < 1 && high - low > 2))
		return low + (high - low) / 2;
	return low + (more < 1 ? 1 : more < high - low ? (int)more : high - low - 1);
}

/* Raises *count, a number in *k that fits now, to the largest that fits. It does not try the next number if
 * one more takes what it takes alone, to a hundredth. The result depends only on the limit, not on earlier
 * plans, so that every budget finds the same numbers. */
static int count_raise(struct chooser *s, struct choice_candidate *k, int *count, int most, double one_bytes)
{
	struct choice_candidate fitting = *k;
	int low = *count, high = most + 1, is_bounded = choice_way_of(s, k)->bound != NULL, rc = 0;

	for (int tried = 0; high - low > 1; tried++) {
		int guess = count_guess(s, &fitting, low, high, one_bytes, tried, is_bounded);
		double known_bytes = one_bytes;

		*count = guess;
		rc = candidate_plan(s, k);
		if (rc)
			break;
		if (k->device_bytes > fitting.device_bytes)
			one_bytes = (double)(k->device_bytes - fitting.device_bytes) / (guess - low);
		if (!candidate_fits(s, k)) {
			high = guess;
			continue;
		}
		fitting = *k;
		low = guess;
		if (fabs(known_bytes - one_bytes) < 0.01 * known_bytes &&
		        room_bytes(s, k) < 0.99 * known_bytes)
			break;
	}
	*k = fitting;
	return rc;
}

void choice_least_keep(struct choice *f, const struct chooser *s, const struct choice_candidate *k)
{
	const struct choice_candidate *least = &f->least;
	int before = way_index(s, k) - way_index(s, least);

	if (!candidate_fits_device(s, k))
		return;
	if (!least->device_bytes || k->host_bytes < least->host_bytes ||
	        (k->host_bytes == least->host_bytes &&
	                (before < 0 || (!before && k->states < least->states))))
		f->least = *k;
}

int choice_weights_raise(struct chooser *s, struct choice_candidate *k)
{
	const struct way *way = choice_way_of(s, k);

	if (s->units <= k->states)
		return 0;
	return count_raise(s, k, &k->weights,
	        choice_bound_weights(way->bound, k, s->units - k->states, s->device_bytes),
	        way->weight_bytes);
}

/* A frozen unit whose weights stay on the device needs none on the host. So where only the host lacks room,
 * as many weights stay as fit the device, and *is_fitting says whether the host then has room. */
static int host_spare(struct chooser *s, struct choice_candidate *k, int *is_fitting)
{
	int64_t host_bytes = s->host_bytes;
	int rc;

	choice_least_keep(s->choice, s, k);
	if (!host_bytes || s->limits->device_is_host || !candidate_fits_device(s, k))
		return 0;
	s->host_bytes = 0;
	rc = choice_weights_raise(s, k);
	s->host_bytes = host_bytes;
	if (rc)
		return rc;
	*is_fitting = candidate_fits(s, k);
	choice_least_keep(s->choice, s, k);
	return *is_fitting ? candidate_judge(s, k) : 0;
}

int choice_states_fill(struct chooser *s, struct choice_candidate *k, int *is_fitting)
{
	const struct way *way = choice_way_of(s, k);
	int kept = choice_bound_kept(way->bound, k, s->blocks ? s->blocks - k->spills : 0, s->device_bytes);
	int rc = 0;

	/* Mostly what the bound allows fits, and then nothing less is planned. */
	if (way->bound && kept > 0) {
		k->kept = kept;
		rc = candidate_plan(s, k);
		*is_fitting = !rc && candidate_fits(s, k);
		if (rc)
			return rc;
		if (*is_fitting) {
			rc = choice_weights_raise(s, k);
			return rc ? rc : candidate_judge(s, k);
		}
		k->kept = 0;
	}
	rc = kept < 0 ? 0 : candidate_plan(s, k);
	*is_fitting = kept >= 0 && !rc && candidate_fits(s, k);
	if (kept >= 0 && !rc && !*is_fitting)
		return host_spare(s, k, is_fitting);
	if (!*is_fitting)
		return rc;
	if (s->blocks)
		rc = count_raise(s, k, &k->kept, kept, way->kept_bytes);
	if (!rc)
		rc = choice_weights_raise(s, k);
	return rc ? rc : candidate_judge(s, k);
}
