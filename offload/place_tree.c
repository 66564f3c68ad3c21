/* A treap of places. Each node knows enough of those below it to pass all of them at once where none or each
 * is in the way. */
#include "offload/place_tree.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

struct place_node {
	struct place at;
	int left, right; /* 0: none */
	uint32_t priority;
	/* of all at and below the node */
	int64_t offset, end; /* the least offset, the largest end */
	int64_t gap;         /* no more bytes than this lie free between two */
	int least_first, most_first, least_last, most_last;
};

int place_tree_open(struct place_tree *tree, int most)
{
	*tree = (struct place_tree){.nodes = mem_alloc((size_t)most + 1, sizeof(*tree->nodes))};
	return tree->nodes ? 0 : ERR_NOMEM;
}

void place_tree_close(struct place_tree *tree)
{
	mem_free(tree->nodes);
	*tree = (struct place_tree){0};
}

void place_tree_clear(struct place_tree *tree)
{
	tree->count = tree->root = 0;
}

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static void times_join(struct place_node *n, const struct place_node *below)
{
	n->least_first = min_int(n->least_first, below->least_first);
	n->most_first = max_int(n->most_first, below->most_first);
	n->least_last = min_int(n->least_last, below->least_last);
	n->most_last = max_int(n->most_last, below->most_last);
}

/* Finds what the node knows, from its place and the nodes below. */
static void node_sum(struct place_tree *tree, int node)
{
	struct place_node *n = &tree->nodes[node];
	const struct place_node *left = &tree->nodes[n->left], *right = &tree->nodes[n->right];

	n->offset = n->at.offset;
	n->end = n->at.end;
	n->gap = 0;
	n->least_first = n->most_first = n->at.first;
	n->least_last = n->most_last = n->at.last;
	if (n->left) {
		n->offset = left->offset;
		n->gap = max_i64(left->gap, n->at.offset - left->end);
		n->end = max_i64(n->end, left->end);
		times_join(n, left);
	}
	if (n->right) {
		n->gap = max_i64(n->gap, max_i64(right->gap, right->offset - n->end));
		n->end = max_i64(n->end, right->end);
		times_join(n, right);
	}
}

static int is_before(const struct place *a, const struct place *b)
{
	return a->offset != b->offset ? a->offset < b->offset : a->first < b->first;
}

/* Adds the node below `root`, and returns the root after that: the node with the highest priority. */
static int node_add(struct place_tree *tree, int root, int node)
{
	struct place_node *n = tree->nodes, *r = &n[root];
	int goes_left, below;

	if (!root)
		return node;
	goes_left = is_before(&n[node].at, &r->at);
	below = node_add(tree, goes_left ? r->left : r->right, node);
	if (goes_left)
		r->left = below;
	else
		r->right = below;
	if (n[below].priority > r->priority) {
		if (goes_left) {
			r->left = n[below].right;
			n[below].right = root;
		} else {
			r->right = n[below].left;
			n[below].left = root;
		}
		node_sum(tree, root);
		root = below;
	}
	node_sum(tree, root);
	return root;
}

/* The same for the same number, so that every run takes the same time. */
static uint32_t priority_of(int node)
{
	uint32_t x = (uint32_t)node * 0x9e3779b1u;

	x = (x ^ x >> 15) * 0x85ebca77u;
	return x ^ x >> 13;
}

void place_tree_add(struct place_tree *tree, const struct place *place)
{
	int node = ++tree->count;

	tree->nodes[node] = (struct place_node){.at = *place, .priority = priority_of(node)};
	node_sum(tree, node);
	tree->root = node_add(tree, tree->root, node);
}

/* Raises wanted->offset above the places at and below the node that are in the way; wanted->end is always so
 * many bytes above. */
static void node_pass(const struct place_tree *tree, int node, struct place *wanted)
{
	const struct place_node *n = &tree->nodes[node];
	int64_t bytes = wanted->end - wanted->offset;

	if (!node || n->end <= wanted->offset || n->offset >= wanted->end || n->least_first > wanted->last ||
	        n->most_last < wanted->first)
		return;
	if (n->most_first <= wanted->last && n->least_last >= wanted->first && n->gap < bytes) {
		wanted->offset = n->end;
		wanted->end = n->end + bytes;
		return;
	}
	node_pass(tree, n->left, wanted);
	if (n->at.offset < wanted->end && n->at.end > wanted->offset && n->at.first <= wanted->last &&
	        n->at.last >= wanted->first) {
		wanted->offset = n->at.end;
		wanted->end = n->at.end + bytes;
	}
	node_pass(tree, n->right, wanted);
}

int64_t place_tree_find(const struct place_tree *tree, int64_t base, int64_t bytes, int first, int last)
{
	struct place wanted = {base, base + bytes, first, last};

	node_pass(tree, tree->root, &wanted);
	return wanted.offset;
}
