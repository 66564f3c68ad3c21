/* Micro-batches from rows. */
#include "data/batch.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { LIMIT_DRAWS_MAX = 100000000 };

int64_t batch_source_rows(const struct dataset *data, const struct packing *packing)
{
	return packing ? packing->bin_count : data->row_count;
}

/* The dataset rows of one drawn row: packing->rows[*first ..], as many as returned, or the row itself. */
static int64_t drawn_docs(const struct batch_source *src, int64_t drawn, int64_t *first)
{
	if (!src->packing)
		return 1;
	*first = src->packing->bin_start[drawn];
	return src->packing->bin_start[drawn + 1] - *first;
}

static int64_t drawn_doc(const struct batch_source *src, int64_t drawn, int64_t first, int64_t i)
{
	return src->packing ? src->packing->rows[first + i] : drawn;
}

enum { ANY_EPOCH = -1 };

/* Targets of a row in an epoch; in ANY_EPOCH, the most. Negative: an error. */
static int64_t row_targets(const struct batch_source *src, int64_t row, int64_t epoch)
{
	int64_t count = src->rule->targets(&src->draws, src->data, row);

	return src->rule->drawn && epoch >= 0 ? src->rule->drawn(&src->draws, src->data, epoch, row, count)
	                                      : count;
}

static int64_t epoch_of(const struct batch_source *src, int64_t step)
{
	return step / src->sampler.steps_per_epoch;
}

/* Adds the rows, tokens and targets of one drawn row to the counts. */
static int count_drawn(struct batch_limits *sum, const struct batch_source *src, int64_t drawn, int64_t epoch)
{
	int64_t first = 0, docs = drawn_docs(src, drawn, &first);

	sum->rows++;
	sum->docs += docs;
	for (int64_t i = 0; i < docs; i++) {
		int64_t row = drawn_doc(src, drawn, first, i), tokens = dataset_row_tokens(src->data, row),
		        targets = row_targets(src, row, epoch);

		if (targets < 0)
			return (int)targets;
		sum->tokens += tokens;
		sum->targets += targets;
		if (tokens > sum->doc_tokens)
			sum->doc_tokens = tokens;
	}
	return 0;
}

static void limits_raise(struct batch_limits *limits, const struct batch_limits *seen)
{
	if (seen->tokens > limits->tokens)
		limits->tokens = seen->tokens;
	if (seen->targets > limits->targets)
		limits->targets = seen->targets;
	if (seen->docs > limits->docs)
		limits->docs = seen->docs;
	if (seen->rows > limits->rows)
		limits->rows = seen->rows;
	if (seen->doc_tokens > limits->doc_tokens)
		limits->doc_tokens = seen->doc_tokens;
}

/* Counts every micro-batch of the first steps, without building one. The steps after `distinct` repeat them.
 */
static int limits_by_drawing(
        struct batch_limits *limits, const struct batch_source *src, int64_t step_count, int64_t distinct)
{
	const struct sampler *s = &src->sampler;

	for (int64_t step = 0; step < distinct; step++) {
		int64_t rows = sampler_step_rows(s, step), targets = 0;

		for (int64_t at = 0; at < rows; at += s->batch_rows) {
			struct batch_limits seen = {0};

			for (int64_t i = at; i < at + s->batch_rows && i < rows; i++) {
				int rc = count_drawn(
				        &seen, src, sampler_step_row(s, step, i), epoch_of(src, step));

				if (rc)
					return rc;
			}
			limits_raise(limits, &seen);
			targets += seen.targets;
		}
		if (!targets)
			limits->untrained_steps += (step_count - step + distinct - 1) / distinct;
	}
	return 0;
}

static void limits_by_bound(struct batch_limits *limits, const struct batch_source *src)
{
	int64_t rows = src->sampler.batch_rows;

	if (rows > src->sampler.row_count)
		rows = src->sampler.row_count;
	for (int64_t i = 0; i < batch_source_rows(src->data, src->packing); i++) {
		struct batch_limits seen = {0};

		(void)count_drawn(&seen, src, i, ANY_EPOCH); /* reads no row */
		limits_raise(limits, &seen);
	}
	limits->tokens *= rows;
	limits->targets *= rows;
	limits->docs *= rows;
	limits->rows = rows;
	limits->untrained_steps = -1;
}

int batch_limits_find(struct batch_limits *out, const struct batch_source *src, int64_t step_count)
{
	const struct sampler *s = &src->sampler;
	struct batch_limits limits = {0};
	int64_t distinct = step_count;
	int rc = 0;

	if (s->order == SAMPLER_ORDER_FILE && !s->mix && !s->steps && !src->rule->drawn &&
	        step_count > s->steps_per_epoch)
		distinct = s->steps_per_epoch; /* every epoch is the same */
	if (distinct / s->steps_per_epoch <= LIMIT_DRAWS_MAX / s->row_count)
		rc = limits_by_drawing(&limits, src, step_count, distinct);
	else
		limits_by_bound(&limits, src);
	if (rc)
		return rc;
	if (limits.tokens > INT32_MAX)
		return err_set(ERR_RANGE,
		        "a micro-batch of %lld rows would have %lld tokens; lower "
		        "per_device_train_batch_size or max_length",
		        (long long)s->batch_rows, (long long)limits.tokens);
	if (s->steps) /* others may be fuller than those seen */
		limits.rows = s->batch_rows < s->row_count ? s->batch_rows : s->row_count;
	limits.vector_count = src->data->vector_count;
	*out = limits;
	return 0;
}

int64_t micro_batch_teacher_bytes(const struct batch_limits *limits)
{
	return limits->docs * limits->vector_count * (int64_t)sizeof(float);
}

static int own_alloc(struct micro_batch *mb, const struct batch_limits *limits, const struct batch_rule *rule)
{
	const struct batch_sizes most = {limits->tokens, limits->targets, limits->docs};

	for (int i = 0; i < batch_array_count(rule); i++) {
		mb->own[i] = mem_alloc((size_t)batch_array_bytes(&rule->array[i], &most), 1);
		if (!mb->own[i])
			return ERR_NOMEM;
	}
	return 0;
}

int micro_batch_alloc(
        struct micro_batch **out, const struct batch_limits *limits, const struct batch_rule *rule)
{
	struct micro_batch *mb = mem_alloc(1, sizeof(*mb));
	size_t tokens = (size_t)limits->tokens, targets = (size_t)limits->targets;

	*out = NULL;
	if (!mb)
		return ERR_NOMEM;
	mb->limits = *limits;
	mb->ids = mem_alloc(tokens, sizeof(*mb->ids));
	mb->positions = mem_alloc(tokens, sizeof(*mb->positions));
	mb->doc_start = mem_alloc(tokens, sizeof(*mb->doc_start));
	mb->doc_end = mem_alloc(tokens, sizeof(*mb->doc_end));
	mb->target_rows = mem_alloc(targets, sizeof(*mb->target_rows));
	mb->doc_offset = mem_alloc((size_t)limits->docs + 1, sizeof(*mb->doc_offset));
	mb->doc_target = mem_alloc((size_t)limits->docs + 1, sizeof(*mb->doc_target));
	mb->doc_row = mem_alloc((size_t)limits->docs, sizeof(*mb->doc_row));
	mb->row_start = mem_alloc((size_t)limits->rows + 1, sizeof(*mb->row_start));
	/* the sampler writes up to batch_rows, which no micro-batch of the run exceeds */
	mb->rows = mem_alloc((size_t)limits->rows, sizeof(*mb->rows));
	mb->teacher = mem_alloc((size_t)micro_batch_teacher_bytes(limits), 1);
	if (!mb->ids || !mb->positions || !mb->doc_start || !mb->doc_end || !mb->target_rows ||
	        !mb->doc_offset || !mb->doc_target || !mb->doc_row || !mb->row_start || !mb->rows ||
	        !mb->teacher || own_alloc(mb, limits, rule)) {
		micro_batch_free(mb);
		return ERR_NOMEM;
	}
	*out = mb;
	return 0;
}

void micro_batch_free(struct micro_batch *mb)
{
	if (!mb)
		return;
	mem_free(mb->ids);
	mem_free(mb->positions);
	mem_free(mb->doc_start);
	mem_free(mb->doc_end);
	mem_free(mb->target_rows);
	mem_free(mb->doc_offset);
	mem_free(mb->doc_target);
	mem_free(mb->doc_row);
	for (int i = 0; i < BATCH_OWN_MAX; i++)
		mem_free(mb->own[i]);
	mem_free(mb->row_start);
	mem_free(mb->teacher);
	mem_free(mb->rows);
	row_buffer_free(&mb->buffer);
	mem_free(mb);
}

/* Appends one row of the dataset as one document. */
static int add_document(
        struct micro_batch *mb, const struct batch_source *src, int64_t row, int64_t place, int64_t epoch)
{
	struct batch_document document = {.first_token = (int32_t)mb->token_count,
	        .index = mb->doc_count,
	        .place = place,
	        .value = src->row_value ? src->row_value[row] : 0,
	        .draws = &src->draws,
	        .epoch = epoch,
	        .data_row = row};
	int32_t start = document.first_token, count;
	int rc = dataset_row_read(&document.row, &mb->buffer, src->data, row);

	if (rc)
		return rc;
	count = (int32_t)document.row.token_count;
	for (int32_t t = 0; t < count; t++) {
		mb->ids[start + t] = document.row.ids[t];
		mb->positions[start + t] = t;
		mb->doc_start[start + t] = start;
		mb->doc_end[start + t] = start + count;
	}
	src->rule->add(mb, &document);
	if (mb->limits.vector_count)
		memcpy(mb->teacher + mb->doc_count * mb->limits.vector_count, document.row.vector,
		        (size_t)mb->limits.vector_count * sizeof(*mb->teacher));
	mb->doc_row[mb->doc_count++] = row;
	mb->doc_target[mb->doc_count] = (int32_t)mb->target_count;
	mb->token_count += count;
	mb->doc_offset[mb->doc_count] = (int32_t)mb->token_count;
	return 0;
}

int batch_build(struct micro_batch *mb, const struct batch_source *src, int64_t step, int64_t index)
{
	const struct sampler *s = &src->sampler;
	struct batch_limits need = {0};
	int rc = 0;

	mb->token_count = mb->target_count = mb->doc_count = mb->row_count = 0;
	mb->doc_offset[0] = mb->doc_target[0] = mb->row_start[0] = 0;
	if (s->batch_rows > mb->limits.rows && s->row_count > mb->limits.rows)
		return err_set(ERR_RANGE, "a micro-batch has %lld rows and room for %lld",
		        (long long)s->batch_rows, (long long)mb->limits.rows);
	int64_t row_count = sampler_rows(s, mb->rows, step, index);

	for (int64_t i = 0; i < row_count && !rc; i++)
		rc = count_drawn(&need, src, mb->rows[i], epoch_of(src, step));
	if (rc)
		return rc;
	if (need.tokens > mb->limits.tokens || need.targets > mb->limits.targets ||
	        need.docs > mb->limits.docs)
		return err_set(ERR_RANGE, "micro-batch %lld of step %lld has %lld tokens and room for %lld",
		        (long long)index, (long long)step, (long long)need.tokens,
		        (long long)mb->limits.tokens);
	for (int64_t i = 0; i < row_count; i++) {
		int64_t first = 0, docs = drawn_docs(src, mb->rows[i], &first);

		for (int64_t k = 0; k < docs; k++) {
			rc = add_document(
			        mb, src, drawn_doc(src, mb->rows[i], first, k), k, epoch_of(src, step));
			if (rc)
				return rc;
		}
		mb->row_start[++mb->row_count] = (int32_t)mb->token_count;
	}
	return 0;
}

int batch_step_counts(
        int64_t *target_count, int64_t *token_count, const struct batch_source *src, int64_t step)
{
	const struct sampler *s = &src->sampler;
	int64_t rows = sampler_step_rows(s, step);
	struct batch_limits sum = {0};
	int rc = 0;

	for (int64_t i = 0; i < rows && !rc; i++)
		rc = count_drawn(&sum, src, sampler_step_row(s, step, i), epoch_of(src, step));
	if (target_count)
		*target_count = sum.targets;
	if (token_count)
		*token_count = sum.tokens;
	return rc;
}

int64_t batch_step_rows(const struct batch_source *src, int64_t step)
{
	return sampler_step_rows(&src->sampler, step);
}
