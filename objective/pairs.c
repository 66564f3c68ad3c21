/* Preference pairs: DPO and its relatives (device/preference.h).
 *
 * Documents 2p and 2p + 1 are the chosen and the rejected text of pair p. The loss of a pair depends on the
 * log probabilities of both texts, so the head goes over its chunks twice: first for all token losses of the
 * micro-batch, then, with a weight for each token, for the gradients. */
#include "data/batch.h"
#include "device/op.h"
#include "model/blocks/head.h"
#include "objective/objective.h"

#include <inttypes.h>

/* Arrays. FIRST: where the targets of each text begin; ANSWER: those of its completion. */
enum { LABEL, FIRST, ANSWER, REFERENCE };

static const char *const keys[] = {"preference_loss", "preference_beta", "preference_label_smoothing",
        "preference_gamma", "preference_own_weight", "preference_own_tokens", NULL};

static struct preference preference_of(const double *settings)
{
	enum preference_kind kind = (enum preference_kind)settings[0];

	return (struct preference){.kind = kind,
	        .beta = settings[1],
	        .label_smoothing = settings[2],
	        .gamma = settings[3],
	        .own = settings[4] >= 0 ? settings[4] : preference_reads(kind, PREFERENCE_OWN)};
}

static int reads_values(const double *settings)
{
	return preference_reads(preference_of(settings).kind, PREFERENCE_REFERENCE);
}

static double row_value(const float *losses, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += losses[i];
	return sum > 0 ? -sum : 0; /* rounding may leave less than nothing */
}

static int has_prompt(const struct batch_draws *draws, int64_t row)
{
	return draws->is_own_prompt && row % 2 == 0;
}

static int64_t text_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row)
{
	return has_prompt(draws, row) ? dataset_row_tokens(data, row) - 1 : dataset_row_targets(data, row);
}

/* Appends the tokens that are not trained: the prompt, and what a chat has between and behind answers. */
static void prompt_add(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	int32_t *label = mb->own[LABEL];

	for (int64_t t = 0; t + 1 < row->token_count; t++) {
		if (row_label(row, t + 1) != DATASET_IGNORE)
			continue;
		label[mb->target_count] = row->ids[t + 1];
		mb->target_rows[mb->target_count++] = document->first_token + (int32_t)t;
	}
}

static void text_add(struct micro_batch *mb, const struct batch_document *document)
{
	int32_t *first = mb->own[FIRST], *answer = mb->own[ANSWER];
	double *reference = mb->own[REFERENCE];

	first[document->index] = (int32_t)mb->target_count;
	if (has_prompt(document->draws, document->data_row))
		prompt_add(mb, document);
	answer[document->index] = (int32_t)mb->target_count;
	objective_add_next(mb, document);
	first[document->index + 1] = (int32_t)mb->target_count;
	reference[document->index] = document->value;
}

/* ---- the head ---- */

/* Weights of the targets come after what the vocabulary head needs. */
static int64_t scratch_bytes(const struct stage_call *call)
{
	int64_t end = head_scratch_bytes(call);

	layout_take(&end, call->targets, 4);
	return end;
}

static void head_run(struct stage_call *call, enum head_mode mode)
{
	const struct device_batch *batch = call->batch;
	struct token_losses losses = {.label = batch->own[LABEL], .weight = DEV_NONE};

	if (mode == HEAD_TRAIN && batch->targets) {
		dev_addr weight = scratch_at(call, head_scratch_bytes(call));

		head_losses(call, HEAD_LOSS, &losses);
		call_op(call, &(struct op){.kind = OP_PREFERENCE,
		                      .preference = {.weight = weight,
		                              .nll = call->memory->loss,
		                              .first = batch->own[FIRST],
		                              .answer = batch->own[ANSWER],
		                              .reference = batch->own[REFERENCE],
		                              .pairs = batch->documents / 2,
		                              .tokens = batch->targets,
		                              .loss = preference_of(call->memory->settings)}});
		losses = (struct token_losses){.label = batch->own[LABEL], .weight = weight, .is_again = 1};
	}
	head_losses(call, mode, &losses);
}

static const struct head_pass head = {head_run, scratch_bytes, 0};

/* ---- on the host ---- */

/* The reward of a text is beta times the difference of its log probabilities by policy and reference; of
 * simpo and orpo by the policy's means over tokens. Each for the chosen texts, then for the rejected ones.
 * RIGHT: pairs whose chosen text has the higher reward. */
enum { SUM_LOSS, SUM_REWARD, SUM_LOGP = SUM_REWARD + 2, SUM_RIGHT = SUM_LOGP + 2, SUM_COUNT };

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	const struct preference p = preference_of(settings);
	const int32_t *first = batch->own[FIRST], *answer = batch->own[ANSWER];
	const double *reference = batch->own[REFERENCE];

	for (int64_t n = 0; n + 1 < batch->documents; n += 2) {
		struct preference_pair pair;
		double grad[2], own_grad, reward[2];

		pair.own = 0;
		for (int64_t t = first[n]; t < first[n + 1]; t++)
			pair.own -= losses[t];
		pair.own_count = first[n + 1] - first[n];
		for (int i = 0; i < 2; i++) {
			double logp = 0;

			for (int64_t t = answer[n + i]; t < first[n + i + 1]; t++)
				logp -= losses[t];
			pair.policy[i] = logp;
			pair.reference[i] = reference[n + i];
			pair.count[i] = first[n + i + 1] - answer[n + i];
			if (preference_reads(p.kind, PREFERENCE_MEANS))
				logp /= (double)pair.count[i];
			reward[i] = p.beta * (logp - pair.reference[i]);
			sums[SUM_REWARD + i] += reward[i];
			sums[SUM_LOGP + i] += logp;
		}
		sums[SUM_LOSS] += preference_loss(&p, &pair, grad, &own_grad);
		sums[SUM_RIGHT] += reward[0] > reward[1];
	}
}

enum { CHOSEN, REJECTED, MARGINS, ACCURACIES, LOGP_CHOSEN, LOGP_REJECTED }; /* metrics */

static void metrics_find(double *metrics, const double *sums, double count)
{
	metrics[CHOSEN] = sums[SUM_REWARD] / count;
	metrics[REJECTED] = sums[SUM_REWARD + 1] / count;
	metrics[MARGINS] = (sums[SUM_REWARD] - sums[SUM_REWARD + 1]) / count;
	metrics[ACCURACIES] = sums[SUM_RIGHT] / count;
	metrics[LOGP_CHOSEN] = sums[SUM_LOGP] / count;
	metrics[LOGP_REJECTED] = sums[SUM_LOGP + 1] / count;
}

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, ", %.0f%% of %" PRId64 " pairs right", 100 * means->metric[ACCURACIES], means->count);
}

static void say_step(struct str *out, const struct objective_means *means)
{
	str_printf(
	        out, "  right %.0f%%  margin %.3g", 100 * means->metric[ACCURACIES], means->metric[MARGINS]);
}

/* Names and meaning of the metrics are TRL's. */
const struct objective objective_pairs = {
        .name = "pairs",
        .keys = keys,
        .rows = DATASET_PAIRS_ONLY,
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [FIRST] = {"first target", DTYPE_I32, PER_DOCUMENT_BORDER},
                          [ANSWER] = {"first target of the answer", DTYPE_I32, PER_DOCUMENT},
                          [REFERENCE] = {"reference", DTYPE_F64, PER_DOCUMENT}},
                .targets = text_targets,
                .add = text_add},
        .row_documents = 2,
        .is_mean_of_rows = 1,
        .reads_values = reads_values,
        .row_value = row_value,
        .check = objective_needs_vocabulary,
        .head = &head,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .metrics = {[CHOSEN] = "rewards/chosen",
                [REJECTED] = "rewards/rejected",
                [MARGINS] = "rewards/margins",
                [ACCURACIES] = "rewards/accuracies",
                [LOGP_CHOSEN] = "logps/chosen",
                [LOGP_REJECTED] = "logps/rejected"},
        .metrics_find = metrics_find,
        .say_evaluation = say_evaluation,
        .say_step = say_step,
};
