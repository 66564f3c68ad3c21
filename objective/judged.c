/* KTO: answers that are judged one by one, desirable or not.
 *
 * A row has two documents: the prompt with its answer, and the prompt with the answer of another row
 * (data/rows/row_judged.c). Let r be the log probability of an answer by the model minus that by the
 * reference. kl is the mean of r over the answers of other rows in a micro-batch, on all ranks, and at least
 * 0; no gradient goes through it. The loss of a row is, with s the sigmoid,
 *
 *   desirable weight   * (1 - s(beta * (r - kl)))   of a desirable answer
 *   undesirable weight * (1 - s(beta * (kl - r)))   of another
 *
 * Source: Ethayarajh et al. 2024; loss_type "kto" of kto_trainer.py in https://github.com/huggingface/trl. */
#include "base/err.h"
#include "base/mem.h"
#include "data/batch.h"
#include "device/op.h"
#include "model/blocks/head.h"
#include "objective/objective.h"

#include <inttypes.h>
#include <math.h>

/* Arrays. FACT: the facts behind a vector, from the first one on. */
enum { LABEL, DOCUMENT, FIRST, REFERENCE, FACT };
enum { KIND, BETA, DESIRABLE, UNDESIRABLE }; /* settings */
enum { HIGH, LOW, WIDTH };                   /* a vector: r as the sum of two floats */

static const char *const keys[] = {"preference_loss", "preference_beta", "preference_desirable_weight",
        "preference_undesirable_weight", NULL};

static int reads_values(const double *settings)
{
	(void)settings;
	return 1;
}

/* ---- micro-batches ---- */

static void text_add(struct micro_batch *mb, const struct batch_document *document)
{
	int64_t d = document->index, from = mb->target_count;
	int32_t *first = mb->own[FIRST], *of_target = mb->own[DOCUMENT];

	first[d] = (int32_t)from;
	objective_add_next(mb, document);
	first[d + 1] = (int32_t)mb->target_count;
	for (int64_t t = from; t < mb->target_count; t++)
		of_target[t] = (int32_t)d;
	((double *)mb->own[REFERENCE])[d] = document->value;
	((float *)mb->own[FACT + VECTOR_LABEL])[d] = row_label(&document->row, 0) != DATASET_IGNORE;
	((float *)mb->own[FACT + VECTOR_TOKENS])[d] = (float)document->row.token_count;
	((float *)mb->own[FACT + VECTOR_PLACE])[d] = (float)document->place;
}

/* ---- the head ---- */

/* Behind what the vocabulary head needs, all F32. */
struct places {
	int64_t loss, weight; /* [targets] */
	int64_t ratio, grad;  /* [documents, 2], [documents] */
	int64_t bytes;
};

static struct places places_of(const struct stage_call *call)
{
	int64_t end = head_scratch_bytes(call);
	struct places p;

	p.loss = layout_take(&end, call->targets, 4);
	p.weight = layout_take(&end, call->targets, 4);
	p.ratio = layout_take(&end, WIDTH * call->documents, 4);
	p.grad = layout_take(&end, call->documents, 4);
	p.bytes = end;
	return p;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return places_of(call).bytes;
}

static void columns(struct stage_call *call, struct rows dst, struct rows src, int64_t cols)
{
	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = dst.base,
	                              .src = src.base,
	                              .rows = dst.count,
	                              .cols = cols,
	                              .dst_stride = dst.stride,
	                              .src_stride = src.stride,
	                              .dst_dtype = DTYPE_F32,
	                              .src_dtype = DTYPE_F32}});
}

/* The log ratios of a micro-batch's documents, and the facts behind them. */
static void vectors_find(struct stage_call *call, const struct places *p, const struct token_losses *losses)
{
	const struct device_batch *batch = call->batch;
	int64_t N = batch->documents, stride = WIDTH + VECTOR_FACTS;
	dev_addr to = call->memory->vectors;

	head_losses(call, HEAD_LOSS, losses);
	call_op(call, &(struct op){.kind = OP_LOG_RATIO,
	                      .log_ratio = {.ratio = scratch_at(call, p->ratio),
	                              .nll = call->memory->loss,
	                              .first = batch->own[FIRST],
	                              .reference = batch->own[REFERENCE],
	                              .texts = N,
	                              .tokens = batch->targets}});
	columns(call, (struct rows){to, N, stride}, (struct rows){scratch_at(call, p->ratio), N, WIDTH},
	        WIDTH);
	for (int fact = 0; fact < VECTOR_FACTS; fact++)
		columns(call, (struct rows){dev_at(to, 4 * (WIDTH + fact)), N, stride},
		        (struct rows){batch->own[FACT + fact], N, 1}, 1);
}

/* A token's weight is that of its document. */
static void weights_find(struct stage_call *call, const struct places *p)
{
	const struct device_batch *batch = call->batch;
	int64_t N = batch->documents;
	dev_addr grad = scratch_at(call, p->grad);

	columns(call, (struct rows){grad, N, 1},
	        (struct rows){call->memory->vectors, N, WIDTH + VECTOR_FACTS}, 1);
	call_op(call, &(struct op){.kind = OP_GATHER,
	                      .gather = {.out = scratch_at(call, p->weight),
	                              .table = grad,
	                              .index = batch->own[DOCUMENT],
	                              .rows = batch->targets,
	                              .cols = 1,
	                              .table_rows = N,
	                              .dtype = DTYPE_F32}});
}

static void head_run(struct stage_call *call, enum head_mode mode)
{
	const struct stage_memory *memory = call->memory;
	struct places p = places_of(call);
	struct stage_memory own = *memory; /* losses of tokens stay on the device */
	struct token_losses losses = {.label = call->batch->own[LABEL], .weight = DEV_NONE};

	own.loss = scratch_at(call, p.loss);
	call->memory = &own;
	if (mode == HEAD_VECTORS && call->batch->targets)
		vectors_find(call, &p, &losses);
	if (mode == HEAD_GRADIENTS) {
		if (call->batch->targets) {
			weights_find(call, &p);
			losses.weight = scratch_at(call, p.weight);
		}
		head_losses(call, HEAD_TRAIN, &losses);
	}
	call->memory = memory;
}

static const struct head_pass head = {head_run, scratch_bytes, 0};

/* ---- on the host ---- */

static int64_t width(const struct model *model)
{
	(void)model;
	return WIDTH;
}

static double ratio_of(const float *row)
{
	return (double)row[HIGH] + (double)row[LOW];
}

static double sigmoid(double x)
{
	return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* What a document leaves for sums_add: its loss, or the kl of its micro-batch where its answer is another
 * row's; then its log ratio. */
enum { GIVEN_LOSS, GIVEN_RATIO, GIVEN_COUNT = GIVEN_RATIO + WIDTH };

static void document_judge(struct judgement *j, int64_t i, double kl)
{
	const double beta = j->settings[BETA];
	const float *row = j->row[i];
	int is_own = row[WIDTH + VECTOR_PLACE] == 0, is_good = row[WIDTH + VECTOR_LABEL] != 0;
	double weight = j->settings[is_good ? DESIRABLE : UNDESIRABLE];
	double x = beta * (ratio_of(row) - kl) * (is_good ? 1 : -1);

	if (j->loss[i]) {
		j->loss[i][GIVEN_LOSS] = (float)(is_own ? weight * sigmoid(-x) : kl);
		j->loss[i][GIVEN_RATIO + HIGH] = row[HIGH];
		j->loss[i][GIVEN_RATIO + LOW] = row[LOW];
	}
	if (!j->gradient)
		return;
	/* by the sum of token losses, which is minus the log probability */
	j->gradient[i * WIDTH] =
	        is_own ? (float)(weight * beta * sigmoid(x) * sigmoid(-x) * (is_good ? 1 : -1)) : 0;
}

static int judge(struct judgement *j)
{
	double *kl = mem_alloc((size_t)j->part_count, sizeof(*kl));
	int64_t *count = mem_alloc((size_t)j->part_count, sizeof(*count));
	int rc = kl && count ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < j->count && !rc; i++)
		if (j->row[i][WIDTH + VECTOR_PLACE] != 0) {
			kl[j->part[i]] += ratio_of(j->row[i]);
			count[j->part[i]]++;
		}
	for (int m = 0; m < j->part_count && !rc; m++)
		kl[m] = kl[m] <= 0 ? 0 : kl[m] / (double)count[m]; /* NaN stays NaN */
	for (int64_t i = 0; i < j->count && !rc; i++)
		document_judge(j, i, kl[j->part[i]]);
	mem_free(kl);
	mem_free(count);
	return rc;
}

static const struct vectors_pass vectors = {width, judge, GIVEN_COUNT};

enum { SUM_LOSS, SUM_REWARD, SUM_LOGP = SUM_REWARD + 2, SUM_GOOD = SUM_LOGP + 2, SUM_KL, SUM_COUNT };

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	const float *is_good = batch->own[FACT + VECTOR_LABEL];
	const double *reference = batch->own[REFERENCE];

	for (int64_t n = 0; n + 1 < batch->documents; n += 2) {
		const float *given = losses + n * GIVEN_COUNT, *other = given + GIVEN_COUNT;
		double ratio = ratio_of(given + GIVEN_RATIO);
		int side = is_good[n] == 0; /* 0: desirable */

		sums[SUM_LOSS] += (double)given[GIVEN_LOSS];
		sums[SUM_KL] += (double)other[GIVEN_LOSS];
		sums[SUM_REWARD + side] += settings[BETA] * ratio;
		sums[SUM_LOGP + side] += ratio + reference[n];
		sums[SUM_GOOD] += !side;
	}
}

/* The log probability of a document, while its reference is 0. */
static double row_value(const float *losses, int64_t count)
{
	(void)count;
	return ratio_of(losses + GIVEN_RATIO);
}

enum { CHOSEN, REJECTED, MARGINS, LOGP_CHOSEN, LOGP_REJECTED, KL }; /* metrics */

static void metrics_find(double *metrics, const double *sums, double count)
{
	const double rows[2] = {sums[SUM_GOOD], count - sums[SUM_GOOD]};

	for (int side = 0; side < 2; side++) {
		metrics[CHOSEN + side] = rows[side] > 0 ? sums[SUM_REWARD + side] / rows[side] : NAN;
		metrics[LOGP_CHOSEN + side] = rows[side] > 0 ? sums[SUM_LOGP + side] / rows[side] : NAN;
	}
	metrics[MARGINS] = metrics[CHOSEN] - metrics[REJECTED];
	metrics[KL] = sums[SUM_KL] / count;
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	if (isfinite(means->metric[MARGINS]))
		str_printf(out, ", margin %.3g", means->metric[MARGINS]);
	str_printf(out, " over %" PRId64 " answers", means->count);
}

static void say_step(struct str *out, const struct objective_means *means)
{
	if (isfinite(means->metric[MARGINS])) /* answers of both kinds */
		str_printf(out, "  margin %.3g", means->metric[MARGINS]);
	str_printf(out, "  kl %.3g", means->metric[KL]);
}

/* Names and meaning of the metrics are TRL's. */
const struct objective objective_judged = {
        .name = "judged",
        .keys = keys,
        .chosen_by = PREFERENCE_KTO,
        .rows = DATASET_JUDGED_ONLY,
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [DOCUMENT] = {"document", DTYPE_I32, PER_TARGET},
                          [FIRST] = {"first target", DTYPE_I32, PER_DOCUMENT_BORDER},
                          [REFERENCE] = {"reference", DTYPE_F64, PER_DOCUMENT},
                          [FACT + VECTOR_LABEL] = {"desirable", DTYPE_F32, PER_DOCUMENT},
                          [FACT + VECTOR_TOKENS] = {"length", DTYPE_F32, PER_DOCUMENT},
                          [FACT + VECTOR_PLACE] = {"place in its row", DTYPE_F32, PER_DOCUMENT}},
                .targets = objective_row_targets,
                .add = text_add},
        .row_documents = 2,
        .is_mean_of_rows = 1,
        .reads_values = reads_values,
        .row_value = row_value,
        .check = objective_needs_vocabulary,
        .head = &head,
        .vectors = &vectors,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .metrics = {[CHOSEN] = "rewards/chosen",
                [REJECTED] = "rewards/rejected",
                [MARGINS] = "rewards/margins",
                [LOGP_CHOSEN] = "logps/chosen",
                [LOGP_REJECTED] = "logps/rejected",
                [KL] = "kl"},
        .metrics_find = metrics_find,
        .say_evaluation = say_evaluation,
        .say_step = say_step,
};
