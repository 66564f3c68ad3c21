/* A session: the objects that train, eval and generate share. A model with its weights, a tokenizer, rows, a
 * device and an engine.
 *
 * Mental model. Opening first does the cheap parts that can fail (configuration, headers, rows), then those
 * that take memory (engine, weights). So bad input ends before anything is allocated or written. A session
 * owns everything in it. session_close closes it in order, wherever opening stopped.
 */
#ifndef FERRY_TRAIN_SESSION_H
#define FERRY_TRAIN_SESSION_H

#include "checkpoint/hf/hf_chat.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/hf/peft.h"
#include "checkpoint/hf/sentence_dir.h"
#include "config/config.h"
#include "data/batch.h"
#include "data/mix.h"
#include "data/tokenizer/tokenizer.h"
#include "offload/engine.h"
#include "placement/choice.h"
#include "placement/device_memory.h"
#include "placement/machine.h"
#include "train/inputs/data_losses.h"
#include "train/inputs/labels.h"
#include "train/ranks/ranks_compare.h"

/* Rows and their micro-batches. */
struct session_rows {
	struct dataset *data;
	struct packing *packing;
	struct mix mix; /* of weighted data sets; set_count 0: none */
	struct batch_source source;
	struct batch_limits limits;
	struct micro_batch **micro; /* [micro_count] */
	uint64_t hash; /* of all rows in the order of drawing. It detects other rows on resume or on another
	                  rank, which would silently train on something else */
	int64_t step_count; /* of the run, or of one pass */
	int micro_count;
	struct batches *batches; /* of batch_sampler=no_duplicates; NULL: by their places */
	struct turns *turns;     /* of data sets that stay apart; NULL: there is one order of rows */
	struct batches *set_batches[DATA_SETS_MAX]; /* as `batches`, of each such set */
	int loss_of[DATA_SETS_MAX];                 /* the number in session.losses of each such set */
	double *reference; /* [data->row_count] where the objective reads one: log probabilities (train/reference.h) */
};

/* Where rows in files came from, to make them again. */
struct rows_origin {
	struct session *session;
	const char *path;
	uint64_t content_hash;
	int mends;
};

/* How the log probabilities of train/reference.h were computed, as their file says; empty without. */
enum { REFERENCE_HASH_BYTES = 17 };
struct reference_facts {
	char text[4][REFERENCE_HASH_BYTES], checksum[REFERENCE_HASH_BYTES];
};

struct session {
	const struct config *config;
	char *model_dir; /* directory of tokenizer and config files */
	struct model *model;
	struct hf_import *values; /* of merge_base; NULL: none */
	struct hf_import *import;
	struct tokenizer *tokenizer;
	struct peft_config adapter;  /* what the run's adapters are; empty without */
	json_t *adapter_then;        /* those of the resumed checkpoint; NULL without */
	char base[HF_HASH_BYTES];    /* with frozen weights: the hash of the model's files */
	char carried[HF_HASH_BYTES]; /* the same where a result needs the files (train/adapters.h) */
	int keeps_base;              /* 1: checkpoints have the frozen weights, as the one that was resumed */
	struct labels labels;        /* with `objective`; else empty */
	struct sentence_dir sentence; /* of an embedder; empty without embedding_loss */
	struct data_losses losses;    /* of data sets that stay apart; else empty */
	struct hf_chat chat;          /* of the training chats; copied into the result */
	struct side_files side;       /* files of checkpoints and result beside the weights; rank 0 */
	struct reference_facts reference;
	struct session_rows train, eval;
	/* Ends an evaluation when it returns a signal; NULL: none does. */
	int (*is_stopped)(int64_t steps_left);
	struct rows_origin origins[2]; /* of the data read for train, for eval */
	/* Where the reference has to be computed: train's rows, each once, in the micro-batches of the first
	 * epoch if no weights draw rows again. Its data are train's. */
	struct session_rows pass;
	struct session_rows eval_pass; /* the same of eval's, where weights draw rows again; else empty */
	int writes_date; /* 1: a template that rows of chats were rendered with may write the date */
	struct pool *pool;
	const struct machine *machine; /* the planned machine, borrowed; NULL: this one */
	struct device *device;
	int has_nodes; /* 1: the threads of this or another rank are on several NUMA nodes; set with the next */
	struct device_memory device_memory; /* once the engine is open */
	struct engine_options asked;        /* the options before a budget was spent */
	struct engine_options least; /* the smallest plan of them, where the device has no room for any */
	int64_t load_bytes;          /* host memory while loading; set when the engine is open */
	struct choice choice;        /* use of the budget; empty without one */
	struct engine *engine;
};

/* Opens the model's tables and the headers of its weights; no headers with init_weights=random or
 * SESSION_WEIGHTS_ELSEWHERE. */
enum session_weights { SESSION_WEIGHTS_MODEL, SESSION_WEIGHTS_ELSEWHERE };
int session_open_model(struct session *s, const struct config *c, enum session_weights weights);

/* Applies freeze= and trainable=. Call after the model's table is complete and before units are made;
 * collective. */
int session_freeze(struct session *s);

/* Keeps the matrices that the files have in codes, or base_format quantizes, in codes: for commands that
 * train nothing, in place of session_freeze. */
int session_infer(struct session *s);

/* Opens the tokenizer; returns the reason if there is none that ferry reads, and s->tokenizer stays NULL. */
int session_need_tokenizer(struct session *s);

/* Opens rows of `data` in s->train and of `eval_data` or eval_split in s->eval; for VERB_EVAL rows of `data`
 * in s->eval. */
int session_open_rows(struct session *s);

/* A number for the tokens of each row of the data. */
int session_texts_hash(uint64_t *text, const struct dataset *d);

/* Makes steps of the rows' sampler, which is ready but for it: without duplicates, of one data set each. */
int session_rows_steps(struct session_rows *r, const struct session *s);

/* The settings of the objective in a step of these rows; NULL: those of the run. */
const struct objective_use *session_rows_use(
        const struct session *s, const struct session_rows *r, int64_t step);

/* The name of the data set whose rows a step has; NULL: those of all. */
const char *session_rows_set(const struct session *s, const struct session_rows *r, int64_t step);

/* Warns of steps whose loss compares rows, and finds no others; the same of an evaluation's micro-batches. */
void session_warn_lone(const struct session *s);

/* Reads one data set, which takes several ranks; mends damaged files of rows later. */
int session_read_rows(struct session *s, struct dataset **data, const char *path);

/* Keeps the template and end ids of the training rows for the result, so that it can be used as it was
 * trained. */
int session_keep_chat(struct session *s, const struct dataset *d, const struct chat_template *t);

/* What ranks compare of an open session; `resumed`: its checkpoint, or NULL. */
static inline struct ranks_inputs session_inputs(const struct session *s, const struct checkpoint *resumed)
{
	return (struct ranks_inputs){.import = s->import,
	        .resumed = resumed,
	        .train = {s->train.data, s->train.hash},
	        .eval = {s->eval.data, s->eval.hash}};
}

/* Reads the model's other files into s->side, for checkpoints and the result. Call after the rows are open.
 */
int session_open_side(struct session *s);

/* Sets the policy from the configuration; the caller fills in the sizes. */
void session_engine_options(const struct session *s, struct engine_options *o);

/* The sizes of the rows' micro-batches. */
static inline struct engine_sizes session_rows_sizes(const struct session_rows *rows)
{
	return (struct engine_sizes){rows->limits.tokens, rows->limits.targets, rows->limits.docs};
}

/* Opens pool and device: the device with this name, or with NULL that of the configuration. */
int session_open_device(struct session *s, const char *name);

/* Builds the plans and spends vram_budget as placement/choice.h chooses. ERR_FIT names settings that fit. */
int session_open_engine(struct session *s, const struct engine_options *o);

/* 1 if activations=auto may keep them on a CPU: they take host memory, which nobody has limited. */
int session_keeps_activations(const struct session *s, const struct engine_options *o);

/* Maximum host memory of this rank, including the arena if the host computes. Needs an open engine. */
int64_t session_host_bytes(const struct session *s, const struct engine_memory *memory);

/* Allocates memory, then loads weights: pretrained, or random from `seed`. */
int session_start_engine(struct session *s);
int session_load_weights(struct session *s);

void session_close(struct session *s);

#endif
