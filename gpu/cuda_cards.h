/* What well-known cards do, to judge measurements by. The figures are those of examples/machines, which name
 * their sources; tests/simt/test_cuda_cards.c compares the two. */
#ifndef FERRY_GPU_CUDA_CARDS_H
#define FERRY_GPU_CUDA_CARDS_H

/* Rates in TFLOP/s and GB/s. */
struct cuda_card {
	const char *name;    /* as the driver gives it */
	const char *machine; /* file in examples/machines */
	double product;      /* what large products of bf16 reach */
	double attention, attention_grad, memory, link;
};

/* The card with this name, or NULL: it is not known. */
const struct cuda_card *cuda_card_of(const char *name);

extern const struct cuda_card cuda_cards[]; /* the last one has no name */

#endif
