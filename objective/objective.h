/* Objectives: what a run trains for, as data.
 *
 * An objective is a file with one struct objective, and its row in the list. It says which arrays a
 * micro-batch has for it, what the head of the model does with them, how losses add up on the host, and under
 * which names they are reported. All else takes it from here: offload plans and copies arrays that it does
 * not know, train reports numbers by name.
 *
 * The pass of the head sees a whole micro-batch at once, so a loss may be over its tokens, its documents, or
 * all of them against each other. Such a pass need not be that of a vocabulary (model/blocks/head.h): it has
 * the output of the last block, the tensors of the head's stage, and any op.
 *
 * To add one: its file here and a row in OBJECTIVE_LIST. Its keys are rows of config/keys.inc. */
#ifndef FERRY_OBJECTIVE_OBJECTIVE_H
#define FERRY_OBJECTIVE_OBJECTIVE_H

#include "base/str.h"
#include "data/rows/dataset.h"
#include "device/contrast_kind.h"
#include "model/blocks/blocks.h"
#include "objective/scores.h"

/* The list. The first is what a run does that chooses no other. */
#define OBJECTIVE_LIST(ROW)                                                                                  \
	ROW(tokens)                                                                                          \
	ROW(judged)                                                                                          \
	ROW(pairs)                                                                                           \
	ROW(embedding)                                                                                       \
	ROW(classification)                                                                                  \
	ROW(regression)                                                                                      \
	ROW(token_classification)                                                                            \
	ROW(reward)                                                                                          \
	ROW(reranking)                                                                                       \
	ROW(masked)

enum { OBJECTIVE_SETTINGS_MAX = 16, OBJECTIVE_SUMS_MAX = 8, OBJECTIVE_METRICS_MAX = 8 };
enum { OBJECTIVE_LISTS_MAX = 2, OBJECTIVE_LIST_MAX = 16 };

/* The numbers of a key that is a list. */
struct objective_list {
	int count;
	double value[OBJECTIVE_LIST_MAX];
};

/* What the losses of a step, or of an evaluation, come to. */
struct objective_means {
	double loss, metric[OBJECTIVE_METRICS_MAX];
	int64_t count, targets; /* what they are means over; targets, for text */
	struct scores scores;   /* of an evaluation, over all of its rows */
};

/* Losses over the vectors of all documents of a step, on all ranks: documents of one row follow each other.
 * Every rank computes all of them, so several ranks train as one. */
struct pool; /* host/pool.h */
struct judgement {
	const double *settings;
	const struct objective_list *lists;
	const struct model *model;
	int64_t count, width;
	float **row;           /* [count] a vector, then its facts */
	float **loss;          /* [count] where its loss goes; NULL: another rank's */
	const float **teacher; /* [count] what its vector should be, [width]; NULL: none, or another rank's */
	int *part;             /* [count] its micro-batch, below part_count; that of all ranks is one */
	int part_count;
	float *gradient; /* [count, width] zeros; NULL: not wanted */
	double grad_scale;
	struct pool *pool;
	/* Calls fn(context, task, worker) for each task, on several threads. */
	void (*each)(struct pool *pool, int64_t task_count,
	        void (*fn)(void *context, int64_t task, int worker), void *context);
};
struct vectors_pass {
	int64_t (*width)(const struct model *model);
	int (*judge)(struct judgement *j);
	int given; /* floats that it writes to a document's place in `loss`: 1 or, in an evaluation too, more */
};

struct objective {
	const char *name;
	/* Names of its keys, ending with NULL. The first chooses it, unless it is off, 0. The numbers of all
	 * are the settings that a pass and sums get. NULL: none. */
	const char *const *keys;
	const char *lists[OBJECTIVE_LISTS_MAX]; /* names of keys that are lists, up to the first NULL */
	int chosen_by;                          /* the number of that key that chooses it; 0: any but 0 */
	enum dataset_pairs rows;                /* which rows of the data it reads */
	struct dataset_labels labels;           /* what their labels are; without names and their count */
	const char *problem;                    /* problem_type of a result's config.json; NULL: none */
	struct batch_rule batch;
	int row_documents;      /* of a row that is drawn; 0: rows may be packed, and have any number */
	int is_mean_of_rows;    /* 1: the loss is a mean over rows; 0: over targets */
	int is_mean_of_entropy; /* 1: its exponential is a perplexity */
	int (*reads_values)(const double *settings); /* 1: it needs a value of each row, computed before the
	                                                first step; NULL: it never does */
	/* That value, from the losses of the row's document in an evaluation where all values are 0. */
	double (*row_value)(const float *losses, int64_t count);
	int (*check)(const struct model *model); /* ERR_UNSUPPORTED: cannot train it; NULL: always can */
	const struct head_pass *head;            /* its losses: F32 [targets] */
	/* Losses on the host, from the head's vectors; a document has one target then. NULL: the head has
	 * losses. */
	const struct vectors_pass *vectors;
	int sum_count; /* sums over steps and ranks; the first is of the loss */
	void (*sums_add)(
	        double *sums, const double *settings, const struct host_batch *batch, const float *losses);
	const char *metrics[OBJECTIVE_METRICS_MAX]; /* names, up to the first NULL */
	void (*metrics_find)(double *metrics, const double *sums, double count);
	/* Numbers over all rows of an evaluation, from their vectors; without rows their names (scores.h).
	 * NULL: none. ERR_NOMEM. */
	int (*scores_find)(struct scores *out, const struct scored *rows, const double *settings);
	/* Such numbers from the sums, with the tags of classes. */
	void (*scores_of_sums)(struct scores *out, const double *sums, const struct label_tag *tag);
	/* Text behind "loss 1.234" of an evaluation, and of a step's line of progress; NULL: none. */
	void (*say_evaluation)(struct str *out, const struct objective_means *means);
	void (*say_step)(struct str *out, const struct objective_means *means);
};

#define OBJECTIVE_DECLARE(name) extern const struct objective objective_##name;
OBJECTIVE_LIST(OBJECTIVE_DECLARE)
#undef OBJECTIVE_DECLARE
extern const struct objective *const objectives[];
extern const int objective_count;

/* An objective with its settings. type NULL: the first of the list. */
struct objective_use {
	const struct objective *type;
	double settings[OBJECTIVE_SETTINGS_MAX];
	struct objective_list lists[OBJECTIVE_LISTS_MAX];
};

static inline const struct objective *objective_type(const struct objective_use *use)
{
	return use->type ? use->type : objectives[0];
}

static inline int objective_reads_values(const struct objective_use *use)
{
	return objective_type(use)->reads_values && objective_type(use)->reads_values(use->settings);
}

/* A `check` for passes of the vocabulary head. */
int objective_needs_vocabulary(const struct model *model);

/* A batch rule's `targets`: the trained tokens of the row. */
int64_t objective_row_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row);

/* A batch rule's `add` for targets that are the next token, where that has a label. Its labels are own[0]. */
void objective_add_next(struct micro_batch *mb, const struct batch_document *document);

/* A `head` for labels in own[0], and a `sums_add` for the sum of losses alone. */
extern const struct head_pass objective_labels_head;
void objective_add_losses(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses);

/* The means of these sums over `count`. */
struct objective_means objective_means_of(
        const struct objective *o, const double *sums, int64_t count, int64_t targets);

#endif
