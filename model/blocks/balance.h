/* How evenly routers use their experts: what each layer leaves for it, and the loss that keeps them even.
 *
 * A tally is of one micro-batch, on the device and, after forward, in host memory. It has `first` of
 * op_order for each layer of experts, then, with the loss, the sums of the router's probabilities:
 *
 *     int32 first[layers][stride]     float shares[layers][stride]
 *
 * The loss is that of transformers (load_balancing_loss_func, for Switch Transformer's equations 4 to 6): E
 * times the sum over experts of f * P. Of all rows of all layers together, f is the number of choices of an
 * expert by row, P its mean probability. Documents have no padding, so all tokens count. f is constant in
 * backward, so a layer's gradient needs the tallies of all layers, which forward has left. */
#ifndef FERRY_MODEL_BLOCKS_BALANCE_H
#define FERRY_MODEL_BLOCKS_BALANCE_H

#include "model/model.h"

struct tally_shape {
	int64_t layers, experts, stride; /* stride in elements of 4 bytes; layers 0: no experts */
	int has_shares;
	int64_t bytes;
};
struct tally_shape model_tally(const struct model *model);

/* The loss of a micro-batch of `tokens` tokens. Needs shares. */
double tally_loss(const struct tally_shape *shape, const void *tally, int64_t tokens);

/* Adds the rows of each expert to rows[layers * experts]. */
void tally_add_rows(const struct tally_shape *shape, double *rows, const void *tally);

/* Of such sums: the busiest expert's rows over the mean of its layer, as a mean over layers; and the share of
 * experts with any row. */
void tally_load(const struct tally_shape *shape, const double *rows, double *load, double *used);

#endif
