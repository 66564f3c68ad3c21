/* Continues a prompt. */
#include "train/sample.h"

#include "train/data_config.h"
#include "train/ranks_share.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "comm/world.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RNG_SAMPLE = 3 };

/* ---- choosing ---- */

struct candidate {
	double weight;
	int32_t id;
};

static int32_t likeliest(const float *logits, int64_t vocab)
{
	int64_t best = 0;

	for (int64_t i = 1; i < vocab; i++)
		if (logits[i] > logits[best])
			best = i;
	return (int32_t)best;
}

static int candidate_compare(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* Softmax at a temperature, cut to the top_k likeliest and then to the fewest that reach top_p. */
static int64_t candidates_fill(
        struct candidate *list, const float *logits, int64_t vocab, const struct config *c)
{
	double most = logits[likeliest(logits, vocab)], total = 0, kept = 0;
	int64_t count = vocab;

	for (int64_t i = 0; i < vocab; i++) {
		list[i] = (struct candidate){exp(((double)logits[i] - most) / c->temperature), (int32_t)i};
		total += list[i].weight;
	}
	qsort(list, (size_t)vocab, sizeof(*list), candidate_compare);
	if (c->top_k > 0 && c->top_k < count)
		count = c->top_k;
	if (count < vocab) {
		total = 0;
		for (int64_t i = 0; i < count; i++)
			total += list[i].weight;
	}
	for (int64_t i = 0; i < count; i++) {
		kept += list[i].weight;
		if (kept >= c->top_p * total)
			return i + 1;
	}
	return count;
}

static int choose(int32_t *id, const struct config *c, const float *logits, int64_t vocab, int64_t position)
{
	struct candidate *list;
	int64_t count, i = 0;
	double total = 0, at;

	for (int64_t k = 0; k < vocab; k++)
		if (!isfinite(logits[k]))
			return err_set(ERR_NONFINITE,
			        "logits are not finite (%g for id %" PRId64
			        "): the weights are damaged or their training diverged",
			        (double)logits[k], k);
	if (c->temperature == 0) {
		*id = likeliest(logits, vocab);
		return 0;
	}
	list = mem_alloc((size_t)vocab, sizeof(*list));
	if (!list)
		return ERR_NOMEM;
	count = candidates_fill(list, logits, vocab, c);
	for (int64_t k = 0; k < count; k++)
		total += list[k].weight;
	at = rng_uniform((uint64_t)c->seed, RNG_SAMPLE, (uint64_t)position) * total;
	while (i < count - 1 && at >= list[i].weight)
		at -= list[i++].weight;
	*id = list[i].id;
	mem_free(list);
	return 0;
}

/* ---- one text ---- */

/* The text so far as one document; the target row asks for the logits of its last token. */
struct text_batch {
	struct host_batch batch;
	int32_t *position, *start, *end;
	int32_t last;
};

static int text_batch_alloc(struct text_batch *t, int64_t max_tokens)
{
	t->position = mem_alloc((size_t)max_tokens, sizeof(*t->position));
	t->start = mem_alloc((size_t)max_tokens, sizeof(*t->start));
	t->end = mem_alloc((size_t)max_tokens, sizeof(*t->end));
	if (!t->position || !t->start || !t->end)
		return ERR_NOMEM;
	for (int64_t i = 0; i < max_tokens; i++)
		t->position[i] = (int32_t)i;
	return 0;
}

static void text_batch_set(struct text_batch *t, const struct token_list *ids)
{
	for (int64_t i = 0; i < ids->count; i++)
		t->end[i] = (int32_t)ids->count;
	t->last = (int32_t)ids->count - 1;
	t->batch = (struct host_batch){
	        .tokens = ids->count,
	        .targets = 1,
	        .documents = 1,
	        .id = ids->ids,
	        .position = t->position,
	        .doc_start = t->start,
	        .doc_end = t->end,
	        .target_row = &t->last,
	};
}

static int id_ends_text(const struct session *s, int32_t id)
{
	const struct model_config *m = &s->model->config;

	if (s->tokenizer && tokenizer_roles(s->tokenizer)->eos == id)
		return 1;
	for (int i = 0; i < m->eos_count; i++)
		if (m->eos_ids[i] == id)
			return 1;
	return 0;
}

int sample_continue(
        struct session *s, struct token_list *ids, enum sample_finish *finish, int64_t max_new_tokens)
{
	struct text_batch t = {0};
	int64_t begin = ids->count;
	int rc = text_batch_alloc(&t, begin + max_new_tokens);

	*finish = SAMPLE_LENGTH;
	while (!rc && ids->count < begin + max_new_tokens) {
		const float *logits;
		int32_t id = 0;
		int ends;

		text_batch_set(&t, ids);
		rc = engine_logits(s->engine, &logits, &t.batch);
		if (!rc)
			rc = choose(&id, s->config, logits, s->model->config.V, ids->count);
		if (!rc)
			rc = token_list_add(ids, id);
		/* a rank whose logits are not those of the others must not leave them in the next exchange */
		rc = world_agree(rc);
		ends = !rc && id_ends_text(s, id);
		if (!rc && s->config->load == CONFIG_LOAD_RANK0_ONLY) /* only rank 0 has the tokenizer */
			rc = world_broadcast(&ends, sizeof(ends), 0);
		if (!rc && ends) {
			*finish = SAMPLE_STOP;
			break;
		}
	}
	mem_free(t.position);
	mem_free(t.start);
	mem_free(t.end);
	return rc;
}

/* Rows of instructions want the prompt as an instruction. */
static int asks_by_instruction(const struct session *s)
{
	return s->config->data_format == CONFIG_DATA_FORMAT_ALPACA ||
	       (s->train.data && s->train.data->format == DATASET_FORMAT_ALPACA);
}

static int prompt_encode(struct session *s, struct token_list *ids, const char *prompt)
{
	struct str text = {0};
	int rc = session_need_tokenizer(s);

	if (rc)
		return rc;
	if (asks_by_instruction(s))
		dataset_alpaca_prompt(&text, prompt, strlen(prompt), "", 0);
	else
		str_add(&text, prompt);
	rc = str_check(&text);
	if (!rc)
		rc = tokenizer_encode(
		        s->tokenizer, ids, text.data ? text.data : "", text.len_bytes, ADD_SPECIAL_BEFORE);
	str_free(&text);
	return rc;
}

int sample_prompt_ids(struct session *s, struct token_list *ids, const char *prompt)
{
	int rc = ranks_reads_files(s->config, world_self()) ? prompt_encode(s, ids, prompt) : 0;

	rc = world_agree(rc);
	return rc ? rc : ranks_share_tokens(s->config, ids);
}

int sample_add_sizes(struct session *s, struct engine_options *o)
{
	const struct config *c = s->config;
	struct token_list prompt = {0};
	int64_t tokens;
	int rc = 0;

	if (!c->sample_prompt)
		return 0;
	if (c->verb == VERB_PLAN && !s->tokenizer)
		rc = data_config_tokenizer(&s->tokenizer, c, TOKENIZER_OPTIONAL);
	tokens = (int64_t)strlen(c->sample_prompt) + 1;
	if (!rc && (c->verb != VERB_PLAN || s->tokenizer)) {
		rc = sample_prompt_ids(s, &prompt, c->sample_prompt);
		tokens = prompt.count;
	}
	token_list_free(&prompt);
	o->logits = (struct engine_sizes){tokens + c->max_new_tokens, 1};
	o->policy.rope_positions = max_i64(o->policy.rope_positions, o->logits.max_tokens);
	return rc;
}

int sample_run_sizes(struct session *s, struct engine_options *o)
{
	o->policy.rope_positions = max_i64(s->train.limits.doc_tokens, s->eval.limits.doc_tokens);
	o->train = (struct engine_sizes){s->train.limits.tokens, s->train.limits.targets};
	if (s->eval.data)
		o->eval = (struct engine_sizes){s->eval.limits.tokens, s->eval.limits.targets};
	return sample_add_sizes(s, o);
}
