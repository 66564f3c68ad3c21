/* Keys that data sets have of their own, as a loss each: in a file beside their path, in the key
 * data_keys as a list of objects, one for each set of `data`.
 *
 * A set's configuration is that of the run, with its own keys in the place of the run's. So all that
 * reads, checks or uses a key does so for a set as for a run. */
#ifndef FERRY_CONFIG_DATA_KEYS_H
#define FERRY_CONFIG_DATA_KEYS_H

#include "config/config.h"

struct data_keys {
	int count; /* 0: no set has keys of its own */
	struct {
		struct config config;
		char *name; /* NULL: none was given */
	} * sets;
};

/* Reads data_keys. ERR_INPUT names the file's line: a key that holds for all data sets, a wrong value, a
 * list that is none. Call data_keys_free even after an error. */
int data_keys_read(struct data_keys *k, const struct config *c);
void data_keys_free(struct data_keys *k);

/* Gives embedding_loss that of the first set, where only sets have one, so that the run is known as an
 * embedder's. ERR_INPUT: not all sets have one then. What else is wrong is left to data_keys_read. */
int data_keys_resolve(struct config *c);

#endif
