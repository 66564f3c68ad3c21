/* Divides the sizes of micro-batches, steps and rows. */
#include "placement/smaller.h"

#include <inttypes.h>

enum { LENGTH_MIN = 64 };

static int trains(const struct config *c)
{
	return c->verb == VERB_TRAIN || c->verb == VERB_PLAN;
}

static int64_t divided(int64_t value, int64_t divisor)
{
	return (value + divisor - 1) / divisor;
}

/* Upper bounds of a micro-batch of `rows` / `divisor` rows, their texts cut to text_tokens. A row has one
 * text, unless the objective reads several. */
static struct engine_sizes sizes_cut(const struct engine_sizes *sizes, const struct engine_options *base,
        int64_t rows, int64_t divisor, int64_t text_tokens)
{
	struct engine_sizes less = *sizes;
	int64_t texts = 1;

	if (base->policy.objective.type->row_documents && sizes->max_documents) {
		texts = divided(sizes->max_documents, rows);
		less.max_documents = rows / divisor * texts;
	}
	if (rows / divisor * texts * text_tokens < less.max_tokens)
		less.max_tokens = rows / divisor * texts * text_tokens;
	if (less.max_targets > less.max_tokens)
		less.max_targets = less.max_tokens;
	return less;
}

void smaller_apply(struct engine_options *o, const struct smaller *less, const struct engine_options *base,
        const struct config *c)
{
	int64_t row_tokens = c->packing == CONFIG_PACKING_BFD ? c->max_length : base->policy.rope_positions;

	row_tokens = divided(row_tokens, less->length);
	o->train = sizes_cut(&base->train, base, c->per_device_train_batch_size, less->batch, row_tokens);
	o->eval = sizes_cut(&base->eval, base, c->per_device_eval_batch_size, less->eval, row_tokens);
	o->policy.micro_batches = (int)(base->policy.micro_batches / less->accumulation * less->batch);
	o->policy.rope_positions = divided(base->policy.rope_positions, less->length);
}

/* The next divisor of `value` above `divisor`, or 0. */
static int64_t next_divisor(int64_t value, int64_t divisor)
{
	while (++divisor <= value)
		if (value % divisor == 0)
			return divisor;
	return 0;
}

int smaller_next(
        struct smaller *less, const struct engine_options *base, const struct config *c, int shorter_steps)
{
	int64_t fewer_rows = trains(c) ? next_divisor(c->per_device_train_batch_size, less->batch) : 0;
	int64_t fewer_steps =
	        trains(c) && shorter_steps ? next_divisor(base->policy.micro_batches, less->accumulation) : 0;

	if (base->eval.max_tokens && c->per_device_eval_batch_size >= 2 * less->eval)
		less->eval *= 2;
	else if (fewer_rows)
		less->batch = fewer_rows;
	else if (fewer_steps)
		less->accumulation = fewer_steps;
	else if (c->verb != VERB_GENERATE && base->policy.rope_positions / (2 * less->length) >= LENGTH_MIN)
		less->length *= 2;
	else
		return 0;
	return 1;
}

/* A length above the model's max_positions is no better than max_positions. */
static int64_t most_length(const struct engine_options *base, int64_t length)
{
	int64_t positions = base->model->config.max_positions;

	return positions > 0 && positions < length ? positions : length;
}

void smaller_text(struct str *out, const struct smaller *less, const struct engine_options *base,
        const struct config *c)
{
	if (less->batch > 1)
		str_printf(out, " per_device_train_batch_size=%" PRId64,
		        c->per_device_train_batch_size / less->batch);
	if (less->batch > 1 || less->accumulation > 1)
		str_printf(out, " gradient_accumulation_steps=%" PRId64,
		        c->gradient_accumulation_steps / less->accumulation * less->batch);
	if (less->eval > 1)
		str_printf(out, " per_device_eval_batch_size=%" PRId64,
		        c->per_device_eval_batch_size / less->eval);
	if (less->length > 1)
		str_printf(out, " max_length=%" PRId64,
		        most_length(base, divided(base->policy.rope_positions, less->length)));
}
