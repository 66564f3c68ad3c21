/* Private to choice*.c: one candidate of a choice, planned and simulated. */
#ifndef FERRY_PLACEMENT_CHOICE_CANDIDATE_H
#define FERRY_PLACEMENT_CHOICE_CANDIDATE_H

#include "offload/engine.h"
#include "placement/choice_kinds.h"

/* Plans of many equal micro-batches are alike, so a choice plans few. Each of these stands for several in the
 * clock. Memory grows by the same bytes with each micro-batch, and two small plans give it. What is found so
 * is an estimate; the best are planned whole (placement/choice_whole.h). CHOICE_MICROS are planned, and more
 * while they visit no more than CHOICE_VISITS blocks: all of a small model. */
enum { CHOICE_MICROS = 4, CHOICE_VISITS = 128 };

/* What one more micro-batch adds, in layer-major order by the way to stream, the kept and the hosted blocks
 * alone: bytes over the link, and in use on the device and in staging memory while each stage works on the
 * first and on the last. */
struct choice_slope {
	int ahead, spills, kept, hosted;
	enum acts_level kept_level, hosted_level;
	int is_known, count;
	int64_t link_bytes, *device_bytes, *staging_bytes; /* [count] */
};

/* A way to stream. The bytes of one more kept block, resident weight or state are a first guess, measured
 * with nothing else resident. */
struct way {
	int ahead, spills;
	double kept_bytes, weight_bytes, state_bytes;
	struct choice_bound *bound; /* of its candidates (placement/choice_bound.h); NULL: none */
	int states_end;             /* so many states do not fit the device, even alone */
};

/* What is known of the candidates so far, so that none is planned or simulated twice: a hash table with open
 * addressing, by what candidate_is_same compares. cap: a power of two. */
struct choice_memo {
	struct choice_known *slots;
	int count, cap;
};

struct chooser {
	struct choice *choice;
	const struct engine_options *base;
	const struct choice_limits *limits;
	int64_t device_bytes, host_bytes; /* memory that a candidate may take now; 0: any */
	int micros;                       /* of a plan; fewer than the run's: candidates are estimates */
	struct device *meta;
	struct unit_map *map; /* of all candidates */
	struct choice_memo memo;
	struct choice_slope *slopes; /* of estimates */
	int slope_count, slope_cap;
	int states, units, blocks; /* upper bounds of units with state, units with weights, kept blocks */
	struct way ways[CHOICE_WAYS];
	int way_count;
	int most_plans;               /* the search ends after this many plans */
	int64_t listed_ops, most_ops; /* operations of plans so far; and the search ends after this many */
	double best_ms;               /* the shortest step so far */
	int has_planned;              /* 1: the last candidate that fit was not judged yet */
	struct choice_candidate planned;
	struct engine *engine; /* its engine; NULL: not open */
};

void chooser_close(struct chooser *s);

/* Adds a candidate to the choice. ERR_NOMEM. */
int choice_keep(struct choice *choice, const struct choice_candidate *k);

/* Compares two candidates: the shorter step first, then the fewer bytes on the link. */
int choice_by_step(const void *a, const void *b);

/* Finds the shortest step. Among steps equal to a millionth it takes the one with the least traffic, which is
 * better if the real machine differs from the simulated one. */
void choice_best_find(struct choice *choice);

/* Whether the numbers of two candidates are the same. */
int candidate_is_same(const struct choice_candidate *a, const struct choice_candidate *b);

/* Whether candidates are estimates. */
int chooser_estimates(const struct chooser *s);

/* The options of a candidate's engine. candidate_open opens it and finds its memory, which is then known.
 * candidate_open_fewer: only the engine, with one micro-batch fewer. */
struct engine_options candidate_options(const struct chooser *s, const struct choice_candidate *k);
int candidate_open(struct chooser *s, struct choice_candidate *k, struct engine **engine);
int candidate_open_fewer(struct chooser *s, const struct choice_candidate *k, struct engine **engine);

/* How far a value of a plan of s->micros is from that with one fewer, for the run's number of micro-batches:
 * value + candidate_growth * (value - value with one fewer). */
int64_t candidate_growth(const struct chooser *s);

/* Writes a candidate's values into a policy. */
void candidate_apply(struct plan_policy *p, const struct choice_candidate *k);

int candidate_fits_device(const struct chooser *s, const struct choice_candidate *k);

/* A candidate that does not fit the host may still lead to one that does, with more on the device. */
int candidate_fits(const struct chooser *s, const struct choice_candidate *k);

/* Finds the candidate's memory. If it fits, it is the planned one in place of the one before, and its engine
 * stays open if it had to be opened. */
int candidate_plan(struct chooser *s, struct choice_candidate *k);

/* Simulates the candidate's step; 0 if it does not fit. */
int candidate_judge(struct chooser *s, struct choice_candidate *k);

/* Plans the candidate with all micro-batches, and simulates its step if it fits the limits; 0 if not. */
int candidate_judge_whole(struct chooser *s, struct choice_candidate *k);

#endif
