/* Adapters of experts in the files of PEFT, in either of two forms.
 *
 *     per expert   "...mlp.experts.3.gate_proj.lora_A.weight": modules of single experts
 *     fused        one A and B for all experts of a parameter, [E, out, in], which target_parameters names
 *
 * Fused, A is [E rank, in], expert after expert, as in the table. B is [out, rank E]: column k E + e is
 * rank k of expert e. PEFT wraps the module once for each parameter, so the names are
 * "...mlp.experts.base_layer.lora_A" of gate and up and "...mlp.experts.lora_A" of down, or the latter of
 * a parameter alone. If gate and up have adapters of their own, both together have one whose rank is the
 * sum of theirs, with zeros in B.
 *
 * Source: https://github.com/huggingface/peft (ParamWrapper in src/peft/tuners/lora/layer.py). Private to
 * peft*.c. */
#ifndef FERRY_CHECKPOINT_HF_PEFT_EXPERTS_H
#define FERRY_CHECKPOINT_HF_PEFT_EXPERTS_H

#include "checkpoint/hf/peft.h"
#include "model/file_ranges.h"

/* ---- names ---- */

/* PEFT's name, by the modules of transformers: of the whole model, or of a text model (whole NULL);
 * mem_free. */
char *peft_name(const struct model *model, const char *whole, const char *name);

/* Whether adapters of experts are written fused, if there are any. */
int peft_writes_fused(const struct peft_export *options, const struct model *model);

/* The name of a fused tensor without PEFT's prefix (mem_free). NULL: no memory. */
char *peft_fused_name(const struct model *model, int stack, int is_b);

/* The name of the file's tensor, or of the first of them, for an adapter of experts (mem_free). */
char *peft_expert_name(const struct model *model, int adapter);

/* The tensor of the table that a file's tensor of this name, without PEFT's prefix, holds, with its shape
 * in the file. *is_b: its elements are in B's order. 1, 0: none, ERR_NOMEM. */
int peft_fused_find(struct file_ranges *ranges, int *is_b, const struct model *model, const char *name);

/* ---- values ---- */

/* B of the table is [E, out, rank]. */
struct peft_fused_b {
	int64_t experts, out, rank;
};
struct peft_fused_b peft_fused_b(const struct model *model, int tensor);

/* The place in the file of an element of the table. */
static inline int64_t peft_fused_place(const struct peft_fused_b *b, int64_t at)
{
	int64_t k = at % b->rank, row = at / b->rank;

	return (row % b->out * b->rank + k) * b->experts + row / b->out;
}

/* A tensor of the file: elements of one of the table, or all that a stack's adapters make. */
struct peft_piece {
	char *name; /* whole */
	int rank;
	int64_t shape[3];
	int tensor; /* -1: fused */
	int64_t first, count;
	int stack, is_b;
};

/* The adapters of a stack as one: rank and scale. */
struct peft_fused {
	int64_t rank, in, out, experts;
	double scale;
	int count;
	struct {
		int a; /* B follows */
		int64_t rank, rank_at, out, out_at;
		double factor; /* of B, so that all have one scale */
	} part[2];
};
/* 0: it has none. */
int peft_fused_of(struct peft_fused *fused, const struct model *model, int stack);

/* All values of a fused tensor, in the file's order (mem_free). */
int peft_fused_values(float **values, const struct model *model, const struct peft_piece *piece,
        const struct plane_source *source);

#endif
