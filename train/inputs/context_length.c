/* Checks the length of rows and prompts against the model's positions. */
#include "train/inputs/context_length.h"

#include "base/err.h"
#include "base/log.h"

#include <inttypes.h>

/* Positions of a prompt and its continuation. */
static int64_t prompt_positions(const struct engine_options *o)
{
	return o->policy.cache.rows ? o->policy.rope_positions : o->logits.max_tokens;
}

/* Learned positions have an end, and so have rotary ones that are scaled by the length of the text. Other
 * rotary ones have none: their table is as long as the longest document. */
static int learned_check(const struct model_config *m, const struct config *c, const struct engine_options *o)
{
	int64_t longest = o->policy.rope_positions, prompt = prompt_positions(o);

	if (prompt > m->max_positions)
		return err_set(ERR_INPUT,
		        "prompt and max_new_tokens make %" PRId64 " tokens, but the model has %" PRId64
		        " positions; lower max_new_tokens or shorten the prompt",
		        prompt, m->max_positions);
	if (longest > m->max_positions)
		return err_set(ERR_INPUT,
		        "%s: a row has %" PRId64 " tokens, but the model has %" PRId64
		        " positions; set max_length=%" PRId64,
		        c->data, longest, m->max_positions, m->max_positions);
	return 0;
}

/* With yarn, max_position_embeddings may be that of the original model; `factor` then gives the new
 * length. */
static int64_t rotary_positions(const struct model_config *m)
{
	double yarn = m->rope[0].kind == ROPE_YARN
	                      ? m->rope[0].factor * (double)m->rope[0].original_max_position_embeddings
	                      : 0;

	return yarn > (double)m->max_positions && yarn < INT32_MAX ? (int64_t)yarn : m->max_positions;
}

/* Counts all rows, also those that this rank or this run does not draw. */
static void rows_warn(const struct dataset *d, const char *path, int64_t positions)
{
	int64_t longest = 0, count = 0;

	for (int64_t i = 0; i < d->row_count; i++) {
		int64_t tokens = dataset_row_tokens(d, i);

		count += tokens > positions;
		longest = tokens > longest ? tokens : longest;
	}
	if (count)
		log_warn("%s: %" PRId64 " of %" PRId64 " rows have up to %" PRId64
		         " tokens, but the model was made for %" PRId64
		         " (max_position_embeddings); max_length=%" PRId64 " cuts them",
		        path, count, d->row_count, longest, positions, positions);
}

static void rotary_warn(const struct model_config *m, const struct config *c, const struct dataset *train,
        const struct dataset *eval, const struct engine_options *o)
{
	int64_t positions = rotary_positions(m);
	int64_t prompt = prompt_positions(o), longest = o->policy.rope_positions;

	if (train)
		rows_warn(train, c->data, positions);
	if (eval)
		rows_warn(eval, c->eval_data ? c->eval_data : c->data, positions);
	if (prompt > positions)
		log_warn("prompt and max_new_tokens make %" PRId64
		         " tokens, but the model was made for %" PRId64
		         " (max_position_embeddings); lower max_new_tokens",
		        prompt, positions);
	else if (!train && !eval && longest > positions)
		log_warn("planning for rows of %" PRId64 " tokens, but the model was made for %" PRId64
		         " (max_position_embeddings); set max_length=%" PRId64,
		        longest, positions, positions);
}

int context_length_check(const struct model_config *m, const struct config *c, const struct dataset *train,
        const struct dataset *eval, const struct engine_options *o)
{
	if (m->has[ROLE_POSITION] || m->rope[0].is_bounded)
		return learned_check(m, c, o);
	rotary_warn(m, c, train, eval, o);
	return 0;
}
