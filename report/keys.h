/* The configuration keys of runs: which differ between runs, and which from their default. */
#ifndef FERRY_REPORT_KEYS_H
#define FERRY_REPORT_KEYS_H

#include "report/run.h"

enum report_key_class { KEY_DIFFERS, KEY_CHANGED, KEY_DEFAULT, KEY_CLASS_COUNT };

/* A key of some run. */
struct report_key {
	const char *name; /* borrowed from a run */
	enum report_key_class class;
};

struct report_keys {
	struct report_key *items; /* mem_free */
	size_t count;
};

/* Finds the keys of all runs, in the order of their files. ERR_NOMEM. */
int report_keys_find(struct report_keys *keys, const struct report_run *runs, int run_count);

/* 1 if the key differs and is no name of a directory, which differs between runs anyway. */
int report_key_compares(const struct report_key *key);

/* Sorts runs by their best evaluation loss. Runs without one keep their order, behind the others. */
void report_runs_sort(struct report_run *runs, int run_count);

#endif
