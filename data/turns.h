/* Steps of several data sets that stay apart: which set each step of an epoch is of.
 *
 * Each set has a sampler of its own, with its own order of rows and its own steps. An epoch takes them in
 * turns, by the names of sentence-transformers:
 *
 *   FILE          all steps of the first set, then those of the second, ...
 *   ROUND_ROBIN   a step of each set, again and again, until one has no more. Larger sets are not used up:
 *                 an epoch
 *                 has as many steps of each as the smallest has
 *   PROPORTIONAL  every step of every set once, in an order drawn anew in each epoch
 *
 * The steps of a set come in its own order. A pure function of the sets, seed and epoch: a run resumes
 * from its step alone. One epoch is kept at a time, so one thread at a time may ask. */
#ifndef FERRY_DATA_TURNS_H
#define FERRY_DATA_TURNS_H

#include "data/sampler.h"

struct turns;

enum turns_order { TURNS_FILE, TURNS_ROUND_ROBIN, TURNS_PROPORTIONAL };

/* One of the sets; `sampler` is ready and copied, and its `batches` are borrowed. */
struct turns_set {
	struct sampler sampler;
	int64_t first; /* its first row among those of all sets */
};

/* ERR_NOMEM. */
int turns_open(
        struct turns **t, const struct turns_set *sets, int count, enum turns_order order, uint64_t seed);
void turns_close(struct turns *t);

/* For sampler_use. */
struct sampler_steps *turns_steps(struct turns *t);

enum turns_order turns_order_of(const struct turns *t);
int64_t turns_per_epoch(const struct turns *t);
const struct turns_set *turns_set(const struct turns *t, int set);
int64_t turns_set_steps(const struct turns *t, int set); /* of an epoch */

#endif
