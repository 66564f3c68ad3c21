/* What a choice is about: candidates, and the limits that they must fit (placement/choice.h). */
#ifndef FERRY_PLACEMENT_CHOICE_KINDS_H
#define FERRY_PLACEMENT_CHOICE_KINDS_H

#include "model/acts_level.h"

#include <stdint.h>

enum { CHOICE_AHEAD_AS_SET = -1, CHOICE_WAYS = 8 /* ways to stream, at most */ };

struct choice_candidate {
	int ahead;  /* units fetched ahead; 0: none, CHOICE_AHEAD_AS_SET */
	int spills; /* 1: block inputs go to host memory */
	int states, kept, weights;
	int hosted; /* blocks whose activations are in host memory (placement/choice_hosted.h) */
	enum acts_level kept_level, hosted_level; /* how much of them */
	int weights_stay; /* those of `weights` that save a fetch (offload/plan_residency.c) */
	int is_placed;    /* 0: its memory is a lower bound, which does not fit */
	int64_t device_bytes, host_bytes, link_bytes;
	double step_ms, bound_ms; /* 0: not simulated */
	const char *binds;
};

/* Limits of one rank; 0: none. */
struct choice_limits {
	int64_t device_bytes; /* for the arena, the device memory of a run */
	int64_t host_bytes;
	int64_t load_bytes; /* host memory while loading (placement/host_memory.h) */
	int device_is_host; /* 1: the arena is host memory too */
};

struct choice {
	struct choice_candidate *list; /* candidates that fit and were simulated */
	int count, cap;
	int best; /* in the list; -1: nothing fits */
	int planned_count;
	struct choice_candidate least; /* among those that fit the device, the one with the least host memory;
	                                  device_bytes 0: none */
};

#endif
