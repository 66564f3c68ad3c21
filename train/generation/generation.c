/* Runs passes over texts and appends the tokens chosen from their logits. */
#include "train/generation/generation.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "comm/world.h"
#include "data/tokenizer/tokenizer.h"
#include "model/model.h"

#include <string.h>

/* The tokens of one pass. A target is the last token of a text that the pass completes. */
struct pass {
	struct host_batch batch;
	int32_t *arrays; /* id, position, doc_start, doc_end: [pass_tokens] each; target_row [text_count] */
	int64_t *text;   /* [text_count] the text of each target */
};

void generation_sizes(struct generation *g, int64_t text_count, struct engine_options *o)
{
	int64_t longest = g->text_tokens ? g->text_tokens : g->pass_tokens;

	o->logits = (struct engine_sizes){g->pass_tokens, text_count, text_count};
	o->policy.cache = g->cache =
	        (struct cache_shape){g->text_tokens * text_count, g->text_tokens, g->pass_tokens};
	o->policy.rope_positions = max_i64(o->policy.rope_positions, longest);
}

static int pass_alloc(struct pass *p, int64_t tokens, int64_t texts)
{
	p->arrays = mem_alloc((size_t)(4 * tokens + texts), sizeof(*p->arrays));
	p->text = mem_alloc((size_t)texts, sizeof(*p->text));
	if (!p->arrays || !p->text)
		return ERR_NOMEM;
	p->batch = (struct host_batch){.id = p->arrays,
	        .position = p->arrays + tokens,
	        .doc_start = p->arrays + 2 * tokens,
	        .doc_end = p->arrays + 3 * tokens,
	        .target_row = p->arrays + 4 * tokens};
	return 0;
}

static void pass_free(struct pass *p)
{
	mem_free(p->arrays);
	mem_free(p->text);
}

/* Adds tokens of a text that the cache lacks, as many as have room. */
static void pass_add(struct pass *p, const struct generation *g, struct generation_text *t, int64_t text)
{
	struct host_batch *b = &p->batch;
	int64_t room = g->pass_tokens - b->tokens, left = t->ids.count - t->cached;
	int64_t count = left < room ? left : room, at = b->tokens;
	int64_t start = g->text_tokens ? text * g->text_tokens : at;
	int32_t *id = p->arrays + at, *position = id + g->pass_tokens;
	int32_t *doc_start = position + g->pass_tokens, *doc_end = doc_start + g->pass_tokens;

	if (!count)
		return;
	for (int64_t i = 0; i < count; i++) {
		id[i] = t->ids.ids[t->cached + i];
		position[i] = (int32_t)(t->cached + i);
		doc_start[i] = (int32_t)start;
		doc_end[i] = (int32_t)(start + t->ids.count);
	}
	b->tokens += count;
	b->documents++;
	t->cached += count;
	t->reached = max_i64(t->reached, t->cached);
	if (count < left)
		return;
	p->arrays[4 * g->pass_tokens + b->targets] = (int32_t)(b->tokens - 1);
	p->text[b->targets++] = text;
}

/* Whether the text became long, or short again, since the last pass, and long texts use other rotary angles
 * (longrope). The cached keys are then wrong. */
static int turns_anew(const struct generation *g, struct generation_text *t)
{
	int was_long = t->is_long;

	t->is_long = t->ids.count > model_rope_short_tokens(g->model);
	return t->is_long != was_long;
}

static void pass_fill(
        struct pass *p, const struct generation *g, struct generation_text *texts, int64_t count)
{
	p->batch.tokens = p->batch.targets = p->batch.documents = 0;
	for (int64_t i = 0; i < count; i++) {
		if (texts[i].is_done)
			continue;
		if (turns_anew(g, &texts[i]) || !g->text_tokens)
			texts[i].cached = texts[i].reached = 0;
		pass_add(p, g, &texts[i], i);
	}
}

static int id_ends_text(const struct generation *g, int32_t id)
{
	const struct model_config *m = &g->model->config;

	if (g->tokenizer && tokenizer_roles(g->tokenizer)->eos == id)
		return 1;
	for (int i = 0; i < m->eos_count; i++)
		if (m->eos_ids[i] == id)
			return 1;
	return 0;
}

/* Appends the next id to a text, and ends the text if it is complete. */
static int text_grow(struct generation *g, struct generation_text *t, int64_t text, float *logits)
{
	int64_t V = g->model->config.V;
	int32_t id = 0;
	int ends, rc = choose_token(&id, logits, V, &g->choose, t->ids.ids, t->ids.count, t->number);

	if (!rc)
		rc = token_list_add(&t->ids, id);
	/* if one rank fails, all must stop here, or the others would wait in the next exchange */
	rc = world_agree(rc);
	ends = !rc && id_ends_text(g, id);
	if (!rc && g->ends_by_rank0)
		rc = world_broadcast(&ends, sizeof(ends), 0);
	if (!rc && g->heard) {
		rc = g->heard(g->context, text, t);
		ends |= rc == 1;
		rc = rc < 0 ? rc : 0;
	}
	t->finish = ends ? GENERATION_STOP : GENERATION_LENGTH;
	t->is_done = ends || t->ids.count - t->begin >= g->max_new_tokens ||
	             t->ids.count > (g->text_tokens ? g->text_tokens : g->pass_tokens);
	return rc;
}

static int all_done(const struct generation_text *texts, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (!texts[i].is_done)
			return 0;
	return 1;
}

int generation_run(struct generation *g, struct generation_text *texts, int64_t text_count)
{
	int64_t V = g->model->config.V;
	struct pass p = {0};
	int rc = pass_alloc(&p, g->pass_tokens, text_count);
	float *logits = rc ? NULL : mem_alloc((size_t)V, sizeof(*logits));

	if (!rc && !logits)
		rc = ERR_NOMEM;
	for (int64_t i = 0; i < text_count; i++) {
		texts[i].begin = texts[i].ids.count;
		texts[i].is_done = 0;
	}
	while (!rc && !all_done(texts, text_count)) {
		const float *all;

		pass_fill(&p, g, texts, text_count);
		rc = engine_logits(g->engine, &all, &p.batch);
		for (int64_t i = 0; i < p.batch.targets && !rc; i++) {
			memcpy(logits, all + i * V, (size_t)V * sizeof(*logits));
			rc = text_grow(g, &texts[p.text[i]], p.text[i], logits);
		}
	}
	mem_free(logits);
	pass_free(&p);
	return rc;
}

/* Whether the text can go on at token `at` from what the cache has of it. */
static int cache_has(const struct generation *g, const struct generation_text *t, int64_t at)
{
	return model_state_goes_back(g->model, &g->cache, t->reached, at);
}

void generation_text_set(const struct generation *g, struct generation_text *t, struct token_list *ids)
{
	int64_t same = 0;

	while (same < t->cached && same < ids->count && t->ids.ids[same] == ids->ids[same])
		same++;
	t->cached = same < ids->count ? same : ids->count - 1; /* the last id must run again for its logits */
	if (!cache_has(g, t, t->cached))
		t->cached = t->reached = 0;
	token_list_free(&t->ids);
	t->ids = *ids;
	*ids = (struct token_list){0};
}
