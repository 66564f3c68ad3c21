/* Places in a space and the time that each is taken. Finds the lowest free one without looking at each. */
#ifndef FERRY_OFFLOAD_PLACE_TREE_H
#define FERRY_OFFLOAD_PLACE_TREE_H

#include <stdint.h>

/* Bytes [offset, end), taken in the operations first to last. */
struct place {
	int64_t offset, end;
	int first, last;
};

struct place_node;

/* A search tree, by offset and then by time. Places that lie at one offset one after another, as those of
 * micro-batches do, lie beside each other in it. */
struct place_tree {
	struct place_node *nodes; /* [0]: none */
	int count, root;
};

/* For at most `most` places. ERR_NOMEM. */
int place_tree_open(struct place_tree *tree, int most);

void place_tree_close(struct place_tree *tree);

void place_tree_clear(struct place_tree *tree);

void place_tree_add(struct place_tree *tree, const struct place *place);

/* The lowest offset >= base where so many bytes fit between the places that are taken in these operations. */
int64_t place_tree_find(const struct place_tree *tree, int64_t base, int64_t bytes, int first, int last);

#endif
