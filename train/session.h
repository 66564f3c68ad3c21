/* What train, eval and generate open alike: a model with its weights, a tokenizer, rows, a device and an
 * engine.
 *
 * Mental model. Opening goes from what is cheap and can be wrong (configuration, headers, rows) to what takes
 * memory (engine, weights), so that bad input ends before anything is allocated or written. A session owns
 * everything in it; session_close takes it down in order, at whatever point opening stopped.
 */
#ifndef FERRY_TRAIN_SESSION_H
#define FERRY_TRAIN_SESSION_H

#include "checkpoint/hf_chat.h"
#include "checkpoint/hf_import.h"
#include "config/config.h"
#include "data/batch.h"
#include "data/mix.h"
#include "data/tokenizer/tokenizer.h"
#include "offload/engine.h"
#include "placement/choice.h"
#include "placement/device_memory.h"
#include "placement/machine.h"

/* Rows and the micro-batches that are made of them. */
struct session_rows {
	struct dataset *data;
	struct packing *packing;
	struct mix mix; /* of weighted data sets; set_count 0: none */
	struct batch_source source;
	struct batch_limits limits;
	struct micro_batch **micro; /* [micro_count] */
	uint64_t hash; /* of the rows as they will be drawn, all of them: resuming on others, or other ones on
	                  another rank, would silently train on something else */
	int64_t step_count; /* of the run, or of one pass */
	int micro_count;
};

struct session {
	const struct config *config;
	char *model_dir; /* where tokenizer and config files lie */
	struct model *model;
	struct hf_import *import;
	struct tokenizer *tokenizer;
	struct hf_chat chat;    /* of the chats that are trained on; the result carries it */
	struct side_files side; /* what checkpoints and result have beside the weights; rank 0 */
	struct session_rows train, eval;
	enum shuffle_version shuffle; /* of a resumed run, that of its checkpoint; 0: the newest */
	struct pool *pool;
	const struct machine *machine; /* that is planned for; NULL: this one. Whoever planned owns it */
	struct device *device;
	struct device_memory device_memory; /* once the engine is open */
	struct engine_options asked;        /* what it was opened with, before a budget was spent */
	int64_t load_bytes;                 /* of host memory, while it loads; once the engine is open */
	struct choice choice;               /* what a budget was spent on; empty where there is none */
	struct engine *engine;
};

/* The model's tables and, unless init_weights=random or they come from elsewhere, the headers of its weights.
 */
enum session_weights { SESSION_WEIGHTS_MODEL, SESSION_WEIGHTS_ELSEWHERE };
int session_open_model(struct session *s, const struct config *c, enum session_weights weights);

/* freeze= and trainable=, once the model's table stands and before units are made; collective. */
int session_freeze(struct session *s);

/* The tokenizer where there is one that this program reads; otherwise s->tokenizer stays NULL and the reason
 * is returned by session_need_tokenizer. */
int session_need_tokenizer(struct session *s);

/* Rows of `data` in s->train and of `eval_data` or eval_split in s->eval; for VERB_EVAL rows of `data` in
 * s->eval. */
int session_open_rows(struct session *s);

/* The model's other files in s->side, as checkpoints and the result will have them; once the rows are open.
 */
int session_open_side(struct session *s);

/* Policy from the configuration; sizes are filled in by the caller. */
void session_engine_options(const struct session *s, struct engine_options *o);

/* Pool and device: the one of that name, or, with NULL, of the configuration. */
int session_open_device(struct session *s, const char *name);

/* Plans, with vram_budget spent as placement/choice.h chooses; ERR_FIT names settings that fit. */
int session_open_engine(struct session *s, const struct engine_options *o);

/* Host memory that this rank needs at most: with the arena where the host computes. Of an open engine. */
int64_t session_host_bytes(const struct session *s, const struct engine_memory *memory);

/* Memory, then weights: pretrained, or random by `seed`. */
int session_start_engine(struct session *s);
int session_load_weights(struct session *s);

void session_close(struct session *s);

#endif
